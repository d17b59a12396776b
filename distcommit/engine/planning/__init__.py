"""Planning: which work units a run reads, who reads them, and in which order.

Must not read records. Start reading at `planner`.
"""
