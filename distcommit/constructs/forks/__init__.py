"""Fork operators, which choose the branches of each record.

Must not change records, nor depend on a branch's converters, checkers and sink. Start reading at `by_condition`.
"""
