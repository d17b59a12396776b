"""What is kept of past runs: records, tables, times, and how long they stay.

Must not be needed by any run. Start reading at `run_records`.
"""
