"""Maintenance work units: reprocess error files, expire published files.

Must not delete files: the next run does. Start reading at `reprocess`.
"""
