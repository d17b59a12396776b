"""The report of one run. Must not change anything. Start reading at `run_report`."""
