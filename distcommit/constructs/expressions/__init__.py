"""Conditions on records: in YAML, compiled to Arrow functions, or in SQL, executed by DuckDB.

Conditions must not read files or the network. Start reading at `condition`.
"""
