"""Helpers that know no datasets: parallel calls, I/O batching, child processes, display in notebooks.

Must not know datasets. Start reading at `io_batching`.
"""
