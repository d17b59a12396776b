"""A job and its operations, such as run, status, audit and rebuild. Must not hold rules of the protocol. Start reading
at `job_file.load_job_file`, then `jobs.job`, which changes a job, and `jobs.stored_job`, which only reads it.
"""
