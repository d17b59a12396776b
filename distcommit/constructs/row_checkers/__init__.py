"""Row checkers by the type that a job file names: each module without a leading `_` is one, by its `SETTINGS`.

They must not change a record: it passes, or it does not. A null passes all but `not_null` and `schema`, as in SQL: name
the column in a `not_null` beside, if it must be there. Start reading at `not_null`.
"""
