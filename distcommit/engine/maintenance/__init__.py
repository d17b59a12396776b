"""Maintenance of published files: what replaces them, and the deletion of superseded ones.

Must not delete what no tombstone names. Start reading at `replacing`.
"""
