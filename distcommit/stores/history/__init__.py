"""History of past runs: the records and the table of each run, and their retention.

Runs must not depend on the history. Start reading at `run_records`.
"""
