"""History of past runs: records, tables, times, and their retention.

Must not be needed by any run. Start reading at `run_records`.
"""
