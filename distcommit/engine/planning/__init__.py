"""Planning: which work units a run reads, which task reads them, and in which order.

This package must not read records. Start reading at `plan_partition`.
"""
