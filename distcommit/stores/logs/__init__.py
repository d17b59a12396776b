"""Commit logs: segments, epochs, fencing, generations, anchors between logs, and corrupt tails.

Must not decide which record is valid: `protocol` does. Start reading at `commit_log`.
"""
