"""Durable state of a job on any file system: commit logs, task states, plans, job lock and task output.

Must not know sources, sinks or the effects of steps. Start reading at `logs.commit_log`, then `state.job_store`.
"""
