"""Stored schemas of datasets.

Must not contain rules for schemas: `schemas` does. Start reading at `schema_store`.
"""
