"""Snapshots for readers, and what has expired since.

Must not refer to files that are not durable. Start reading at `snapshot_manifests`, then `snapshot_retention`.
"""
