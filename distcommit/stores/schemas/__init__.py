"""Stored schemas of datasets.

Must not judge schemas: `schemas` does. Start reading at `schema_history`.
"""
