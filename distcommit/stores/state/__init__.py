"""The state of one job: its store, lock, plans, task states and small files.

Must not change a commit log. Start reading at `job_store`.
"""
