"""Commit logs: segments, fencing, generations, the anchors between logs, and corrupt tails.

This package must not decide which record is valid: `protocol` does. Start reading at `commit_log`.
"""
