"""What Spark's own readers read, as datasets: staged by the driver's Spark, and read from there by a run.

Must not know Spark. Start reading at `source`, then `frames`. What asks Spark is `distcommit.spark.frames`.
"""

SETTINGS = "source:SparkSource"
