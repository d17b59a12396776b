"""What a batch of Kafka records looks like. Needs no Kafka client."""

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
"""What extraction yields. Headers are null where a message has none, timestamps where the broker has none."""
NO_TIMESTAMP_MS = -1
"""The timestamp of a record that was written without one, whatever its type says."""
