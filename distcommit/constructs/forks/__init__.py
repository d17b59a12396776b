"""Fork operators: they choose the branches of each record.

A fork operator must not change records. Its choice must not depend on what a branch does with them: a branch's
converters, checkers and sink. Start reading at `by_condition`.
"""
