"""Source of the micro-batches of a Spark streaming query. Each micro-batch is a run.

Must not import Spark: `distcommit.spark.spool_micro_batch` writes a micro-batch to a spool. Start reading at
`source`, then `spool` (the files of a micro-batch) and `spooled_batch` (the source that reads them).
"""

SETTINGS = "source:MicroBatchSource"
