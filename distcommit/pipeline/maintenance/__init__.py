"""Maintenance of published files, which a tombstone supersedes.

Must not delete a file that no tombstone names. Start reading at `maintenance_source`.
"""
