"""Spark: runs the engine's functions on executors.

The only package that uses Spark. Must not decide about datasets. Start reading at `task_launch`.
"""
