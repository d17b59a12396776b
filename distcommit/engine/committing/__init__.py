"""Committing: the owner of a bucket recovers, seals, executes and closes commit sequences.

Must not plan or read. Start reading at `bucket_committer`.
"""
