"""Committing: the owner of a bucket recovers, seals, executes and closes the commit sequences of its datasets.

`commit_failures` counts failed replays and quarantines. `abort_attempts` deletes data at targets,
`delete_leftover_files` deletes staged files.

This package must not plan or read. Start reading at `bucket_committer`.
"""
