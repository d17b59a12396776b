"""Small helpers: parallel calls, batches of storage operations, child processes, display in notebooks.

Must not know datasets. Start reading at `io_batching`.
"""
