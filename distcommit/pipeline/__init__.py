"""Processing of one work unit inside a task: extract, convert, check, write, count.

Must not commit anything. Start reading at `attempt`.
"""
