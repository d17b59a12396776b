"""Commit steps: how each is verified, executed, undone and stored, many at a time.

Must not know logs: whether a step may be executed at all is the committer's to say. Start reading at `execution`, then
`rename` and `publishing`.
"""
