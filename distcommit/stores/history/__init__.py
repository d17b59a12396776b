"""History of past runs: records, tables, and their retention.

Runs must not depend on the history. Start reading at `run_records`.
"""
