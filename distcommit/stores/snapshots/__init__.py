"""Snapshots for readers: how far each dataset is published, and what has expired since.

Must not name anything that is not durable. Start reading at `snapshots`.
"""
