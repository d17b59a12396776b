"""Processing of one work unit inside a task: extract, convert, check, write, count.

This package does not commit. Start reading at `attempt`.
"""
