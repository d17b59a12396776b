"""Processing of one work unit inside a task: extract, convert, check, write, count.

`branches` has the fork, each branch, and rejected records; `maintenance` has work units that supersede published files.
`engine` orders the work units of a run.

This package must not commit. Start reading at `task_attempt`.
"""
