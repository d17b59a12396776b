"""The state of one job: its store, lock, plans, task states and small files.

Commit logs are changed elsewhere. Start reading at `job_store`.
"""
