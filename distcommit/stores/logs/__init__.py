"""Commit logs.

Must not decide which record is valid: `protocol` does. Start reading at `commit_log`.
"""
