"""A program: Spark Structured Streaming from Kafka to files or to a Delta table, by topic.

`python spark_stream.py FORMAT BROKERS PATTERN FOLDER INTERVAL_S`; it imports PySpark alone, so that another PySpark
than the product's can run it.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(kind: str, brokers: str, pattern: str, folder: str, interval_s: str) -> None:
    """Run until killed.

    Args:
        kind: `parquet` or `delta`.
        brokers: the clients' setting.
        pattern: of the names of topics.
        folder: has `output` and `checkpoint`.
        interval_s: seconds between two micro-batches.
    """
    spark = SparkSession.builder.getOrCreate()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    source = source.option("subscribePattern", pattern).option("startingOffsets", "earliest")
    # A cached consumer has a request under way when its next batch comes, which a broker keeps waiting that long.
    source = source.option("kafka.fetch.max.wait.ms", "10")
    rows = source.option("failOnDataLoss", "true").load()
    columns = rows.select("topic", "partition", "offset", "timestamp", "key", "value")
    # One task reads a partition completely: so a batch has one file a topic, and 2 tasks instead of one for each topic.
    writer = columns.coalesce(2).writeStream.format(kind).partitionBy("topic").outputMode("append")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").option("compression", "zstd")
    writer.trigger(processingTime=f"{interval_s} seconds").start(f"{folder}/output").awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
