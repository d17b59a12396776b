"""Source of datasets that one of Spark's data source readers reads. The driver's Spark session stages their rows, and
the run reads the staged files.

Must not import Spark: `distcommit.spark.staged_frames` reads. Start reading at `source`, then `staged_row_files`.
"""

SETTINGS = "source:SparkSource"
