"""Stored schemas of datasets.

This package must not contain rules for schemas: `schemas` does. Start reading at `schema_store`.
"""
