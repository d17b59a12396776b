"""Micro-batches of a Spark stream, each of them a run.

Must not know Spark: a micro-batch is spooled by `distcommit.spark.micro_batch`. Start reading at `source`.
"""

SETTINGS = "source:MicroBatchSource"
