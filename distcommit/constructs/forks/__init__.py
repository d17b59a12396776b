"""Fork operators: they choose the branches of each record.

They must not change records, nor look at what branches do with them. Start reading at `by_condition`.
"""
