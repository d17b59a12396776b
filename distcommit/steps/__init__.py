"""Commit steps: how each is verified, executed, undone and stored, in batches.

Must not know logs: the committer decides whether a step may be executed at all. Start reading at `execution`, then
`rename` and `publishing`.
"""
