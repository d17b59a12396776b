"""Schema of batches, usable without a Kafka client."""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("ms", tz="UTC")
BATCH_SCHEMA: pa.Schema = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", TIMESTAMP),
        ("kafka_timestamp_type", pa.string()),
    ]
)
"""Schema of batches. Headers and timestamps are null if a message has none."""
NO_TIMESTAMP_MS = -1
"""Kafka's value for no timestamp."""
