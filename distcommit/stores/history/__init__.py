"""History of past runs.

Runs must not depend on the history. Start reading at `run_records`.
"""
