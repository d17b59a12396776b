"""The driver of a run: its phases, the reports of their tasks, and the record of the run.

Must not read records or publish files: executors do. Start reading at `run`.
"""
