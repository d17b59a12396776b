"""Committing: the owner of a bucket recovers, seals, executes and closes the commit sequences of its datasets.

This package must not plan or read. Start reading at `bucket_committer`.
"""
