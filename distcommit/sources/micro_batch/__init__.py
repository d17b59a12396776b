"""Micro-batches of a Spark streaming query, each of them a run.

Must not know Spark: `distcommit.spark.micro_batch` spools a micro-batch. Start reading at `source`.
"""

SETTINGS = "source:MicroBatchSource"
