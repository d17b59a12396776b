"""Commit logs: segments, fencing, generations, the anchors between logs, and corrupt tails.

Which record is valid is decided in `protocol`. Start reading at `log`.
"""
