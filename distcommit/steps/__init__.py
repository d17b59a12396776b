"""Commit steps: how each is verified, executed, undone and stored.

Must not know logs: the committer decides whether a step may be executed. Start reading at `step_execution`, then
`rename_step` and `bulk_rename`.
"""
