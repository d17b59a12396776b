"""Fork operators: they choose the branches of each record.

Fork operators must not change records, and must not depend on the content of branches. Start reading at `by_condition`.
"""
