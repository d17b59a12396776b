"""Spark: runs the engine's functions on executors, opens sessions, and passes on a stream's micro-batches.

All code that uses Spark is here. Must not decide anything about datasets. Start reading at `launch`.
"""
