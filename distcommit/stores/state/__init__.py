"""The state of one job: its store, lock, fixed settings, plans, task states and small files.

This package must not change commit logs. Start reading at `job_store`.
"""
