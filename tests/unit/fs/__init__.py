"""Correct and defective fsspec file systems."""
