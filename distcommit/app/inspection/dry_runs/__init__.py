"""Predicts runs and releases: commits that they replay, files that they delete, buckets that they cannot recover."""
