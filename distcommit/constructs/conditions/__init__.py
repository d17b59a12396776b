"""Conditions on records, in YAML or SQL, answered by Arrow or DuckDB.

Must not read files or the network. Start reading at `arrow_conditions`.
"""
