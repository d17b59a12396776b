"""Planning: the work units that a run reads, their order (freshness targets first), and their tasks.

This package must not read records. Start reading at `plan_partition`.
"""
