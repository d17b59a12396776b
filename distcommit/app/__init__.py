"""A job as its file says it, and what a person can ask of it: run, status, audit, rebuild, release and the rest.

Puts the parts together; must not hold rules of the protocol. Start reading at `job_file.config`, then `job`, which has
whatever changes a job, and `stored_job`, which looks at one. Each room's sign says what it owns.
"""
