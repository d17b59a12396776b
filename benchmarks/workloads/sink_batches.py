"""Records as a Kafka source and a converter pass them to a sink."""

from __future__ import annotations

import random

import pyarrow as pa

_BATCH_ROWS = 10_000


def sink_batches(records: int, seed: int) -> list[pa.RecordBatch]:
    """Return batches of 10,000 rows of one partition, each row of about 140 bytes."""
    rng, batches = random.Random(seed), []
    for begin in range(0, records, _BATCH_ROWS):
        offsets = range(begin, min(begin + _BATCH_ROWS, records))
        columns = {
            "kafka_partition": pa.array([0] * len(offsets), pa.int32()),
            "kafka_offset": pa.array(offsets, pa.int64()),
            "kafka_timestamp": pa.array([1_700_000_000_000 + number for number in offsets], pa.timestamp("ms", "UTC")),
            "value": pa.array([f"{rng.getrandbits(464):0116x}" for _ in offsets]),
        }
        batches.append(pa.record_batch(columns))
    return batches
