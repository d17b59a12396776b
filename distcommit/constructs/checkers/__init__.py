"""Row checkers of each record, and task checkers of an attempt's records in one branch.

Null passes all row checkers but `not_null` and `schema`, as in an SQL constraint. Checkers must not change records, or
claim a property of several work units. Start reading at `row_values`.
"""
