"""Conditions and computed columns: in YAML, compiled to Arrow functions, or in SQL, executed by DuckDB.

Expressions must not read files or the network. Start reading at `condition`.
"""
