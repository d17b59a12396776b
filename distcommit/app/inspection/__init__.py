"""Reads the stored state of a job. `job_status` computes its status, `problems` its problems with their remedies,
`dry_runs` predicts the next run, and `report_data` has the report of a run.

Must not change anything, and must not need a source. Start reading at `job_status`.
"""
