"""Micro-batches of a Spark stream, each of them a run."""

SETTINGS = "source:MicroBatchSource"
