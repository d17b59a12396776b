"""A job, and its operations: run, status, audit, rebuild, release and the others. Must not hold rules of the protocol.
Start reading at `job_file.load_job_file`, then `jobs.job`, which has the operations that change a job, and
`jobs.stored_job`, which only reads it."""
