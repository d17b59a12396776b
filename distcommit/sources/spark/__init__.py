"""Source of datasets that a reader of Spark reads. The driver's Spark session stages their rows, and the run reads the
staged files.

Must not import Spark: `distcommit.spark.staged_frames` reads. Start reading at `settings`, then `frames`.
"""

SETTINGS = "settings:SparkSource"
