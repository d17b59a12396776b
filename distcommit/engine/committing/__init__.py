"""Committing: the owner of a bucket recovers, seals, executes and closes the commit sequences of its datasets.

`resume_killed_run` seals what a killed run had finished. `poll_sealable_datasets` polls task states.
`bucket_committer` writes the record DONE. `record_commit_failures` counts failed replays and quarantines.
`abort_and_sweep_attempts` deletes data of lost attempts at targets, and the staged files of older runs.
`delete_probes_and_task_output` deletes probes, and this run's staged files of closed datasets.

This package must not plan or read. Start reading at `bucket_committer`.
"""
