"""Snapshots for readers: the published epoch and watermark of each dataset, and what has expired since.

A snapshot must not refer to files that are not durable. Start reading at `snapshot_manifests`,
then `snapshot_retention`.
"""
