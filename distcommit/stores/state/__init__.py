"""The state of one job: its store, lock, fixed settings, plans and task states.

Must not change commit logs. Start reading at `job_store`.
"""
