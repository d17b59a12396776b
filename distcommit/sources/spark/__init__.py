"""Datasets read by Spark's readers: staged by the driver's Spark session, then read by a run.

Must not know Spark: `distcommit.spark.frames` calls it. Start reading at `settings`, then `frames`.
"""

SETTINGS = "settings:SparkSource"
