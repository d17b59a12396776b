"""Helpers: parallel calls, I/O batching, child processes, numbers in texts, display in notebooks, the base of settings.

Must not know datasets. Start reading at `io_batching`.
"""
