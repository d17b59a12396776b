"""Stored schemas of datasets.

Must not judge schemas: `constructs.schemas` does. Start reading at `schema_history`.
"""
