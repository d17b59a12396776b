"""Helpers: parallel calls, I/O batching, child processes, display in notebooks, and the base class of settings.

Must not know datasets. Start reading at `io_batching`.
"""
