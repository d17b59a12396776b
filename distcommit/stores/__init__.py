"""What is durable of a job: its commit logs, task states, plans, marks, lock and task output, on any file system.

Must not know sources, sinks or steps' effects. Start reading at `log`, then `job_store`, `fencing` and `task_states`.
"""
