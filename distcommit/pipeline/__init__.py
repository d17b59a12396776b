"""Processing of one work unit inside a task: extract, convert, check, write, count.

This package must not commit. Start reading at `task_attempt`.
"""
