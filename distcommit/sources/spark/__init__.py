"""Source of datasets of Spark's data source readers, staged by the driver before a run.

Must not import Spark. Start reading at `source`, then `staged_row_files`.
"""

SETTINGS = "source:SparkSource"
