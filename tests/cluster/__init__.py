"""The main job on real servers together: Kafka to HDFS on a Spark cluster, killed and audited.

`python -m tests.cluster main-job` runs it once at size, `python -m tests.cluster soak` repeatedly. Both start the
servers of `tests.servers` below TMPDIR, and end them.
"""
