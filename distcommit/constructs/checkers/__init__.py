"""Row checkers and task checkers.

A row checker passes or fails each record. Null passes all row checkers but `not_null` and `schema`, as in an SQL
constraint. A task checker passes or fails one attempt at a work unit, and receives only the records that the attempt
writes to one branch. Checkers must not change records. A task checker must not claim a property of several work units.
Start reading at `row_values`.
"""
