"""The data of the report of one run; `cli.web` makes the HTML page.

Must not change anything. Start reading at `run_report`.
"""
