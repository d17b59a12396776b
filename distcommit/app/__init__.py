"""A job, and its operations: run, status, audit, rebuild, release and the others. Must not hold rules of the protocol.
Start reading at `job_file.loading`, then `jobs.stored_job` (operations that read a job) and `jobs.job` (operations that
change it).
"""
