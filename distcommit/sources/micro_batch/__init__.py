"""Source of the micro-batches of a Spark streaming query, each of which is a run.

Must not import Spark. Start reading at `source`, then `spool` and `spooled_batch`.
"""

SETTINGS = "source:MicroBatchSource"
