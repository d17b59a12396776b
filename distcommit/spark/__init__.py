"""Spark: runs the engine's functions on executors, opens sessions, and spools micro-batches of a stream.

The only package that uses Spark. Must not decide about datasets. Start reading at `task_launch`.
"""
