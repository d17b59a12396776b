"""History of past runs: the records and the table of each run, and their retention.

No run depends on the history. Start reading at `run_records`.
"""
