"""Planning: work units, their order and their tasks.

Must not read records. Start reading at `plan_partition`.
"""
