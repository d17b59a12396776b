"""The driver of a run.

Must not read records or publish files: executors do. Start reading at `run`.
"""
