"""Commit logs: segments, epochs, fencing of older runs, generations, anchors between logs, and corrupt tails.

This package must not decide which record is valid: `protocol` does. Start reading at `commit_log`.
"""
