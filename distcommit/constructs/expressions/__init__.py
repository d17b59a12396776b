"""Conditions in YAML, compiled to Arrow functions, and SQL for DuckDB.

Must not read files or the network. Start reading at `condition`.
"""
