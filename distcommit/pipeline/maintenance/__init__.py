"""Maintenance of published files: reprocess error files, replace, expire, and delete superseded files.

Every kind supersedes files by one tombstone, in the sequence that publishes the new files. Must not delete a file that
no tombstone names. Start reading at `maintenance_source`.
"""
