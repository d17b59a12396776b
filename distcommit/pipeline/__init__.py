"""Processing of one work unit inside a task: extract, convert, check, write, count.

Must not commit. Start reading at `task_attempt`.
"""
