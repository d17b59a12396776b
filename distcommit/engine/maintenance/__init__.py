"""Maintenance of published files: replacement, and the deletion of superseded ones.

Must not delete a file that no tombstone names. Start reading at `replacing`.
"""
