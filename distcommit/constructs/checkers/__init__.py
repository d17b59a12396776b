"""Row checkers and task checkers.

A row checker passes or fails each record; a null passes all but `not_null` and `schema`, as in an SQL constraint. A
task checker passes or fails one attempt at a work unit, and sees only what the attempt writes to one branch.
Checkers must not change records, and a task checker must not claim what spans work units. Start reading at
`row_values`.
"""
