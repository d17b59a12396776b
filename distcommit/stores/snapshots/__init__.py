"""Snapshots for readers: the published epoch and watermark of each dataset, and what has expired since.

A snapshot refers to durable files only. Start reading at `snapshots`.
"""
