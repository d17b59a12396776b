"""Snapshots for readers: how far each dataset is published, and what was expired since.

Must not name what is not durable. Start reading at `snapshots`.
"""
