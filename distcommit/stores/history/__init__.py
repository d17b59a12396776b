"""History of past runs: the records and the table of each run, and their retention.

Must not be needed by any run. Start reading at `run_records`.
"""
