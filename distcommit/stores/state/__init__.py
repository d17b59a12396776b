"""The state of one job.

Must not change commit logs. Start reading at `job_store`.
"""
