"""Reads the stored state of a job: status, datasets, runs, commit steps, logs and problems.

Must not change anything, and must not need a source. `job_status` computes the status of a job, `problems` its problems
with their remedies, `dry_runs` predicts the next run, and `report_data` has the report of a run. Start reading at
`job_status`.
"""
