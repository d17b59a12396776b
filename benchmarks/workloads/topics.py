"""Kafka topics with known records, and the required content of a copy."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from xxhash import xxh3_64_intdigest

FIRST_DAY_MS = 1_700_000_000_000 // 86_400_000 * 86_400_000
DAY_MS = 86_400_000
_TEXT_BYTES = 48 << 20
_MASK = (1 << 64) - 1
_SHOWN_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Topics:
    """Produced topics: `topics` topics of as many partitions, `records` in each partition, with values of that many
    bytes, spread over `days` days of message time.

    `digest` is the required result of `digest_of_files` for a copy.
    """

    brokers: str
    names: tuple[str, ...]
    partitions: int
    records: int
    value_bytes: int
    days: int
    digest: str

    @property
    def records_in_all(self) -> int:
        return len(self.names) * self.partitions * self.records


def produce(
    brokers: str, prefix: str, topics: int, partitions: int, records: int, *, value_bytes: int, days: int, seed: int
) -> Topics:
    """Create topics and fill them. Values are text that compresses to about three quarters; each begins with its
    number."""
    names = tuple(f"{prefix}-{number:05d}" for number in range(topics))
    make_topics(brokers, names, partitions)
    text = random.Random(seed).randbytes(_TEXT_BYTES // 2).hex().encode()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
    errors: list[str] = []
    number = digest = 0

    def noted(error: object, _: object) -> None:
        if error is not None:
            errors.append(str(error))

    for place in range(records):
        time_ms = FIRST_DAY_MS + place * days // records * DAY_MS
        for name in names:
            for partition in range(partitions):
                start = number * 7919 % (_TEXT_BYTES - value_bytes)
                value = b"%016d" % number + text[start : start + value_bytes - 16]
                digest += xxh3_64_intdigest(value)
                while True:
                    try:
                        producer.produce(name, value, b"%d" % number, partition, noted, timestamp=time_ms)
                        break
                    except BufferError:
                        producer.poll(0.1)
                number += 1
        producer.poll(0)
    if producer.flush(300) or errors:
        raise RuntimeError(f"{len(errors)} records could not be produced: {errors[:1]}")
    return Topics(brokers, names, partitions, records, value_bytes, days, shown(number, digest))


def send(brokers: str, names: Sequence[str], partitions: int, values: Sequence[bytes]) -> None:
    """Create topics, and send the values to all their partitions in turn, as evenly as possible."""
    make_topics(brokers, tuple(names), partitions)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
    places = [(name, partition) for name in names for partition in range(partitions)]
    for number, value in enumerate(values):
        name, partition = places[number % len(places)]
        while True:
            try:
                producer.produce(name, value, b"%d" % number, partition, timestamp=FIRST_DAY_MS)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("not all records could be produced")


def digest_of_files(output: Path) -> tuple[str, int, int]:
    """Return the digest of the values in all Parquet files below a folder, and the numbers of files and row groups."""
    records = digest = files = row_groups = 0
    for path in sorted(output.rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            files, row_groups = files + 1, row_groups + file.num_row_groups
            for batch in file.iter_batches(columns=["value"]):
                values = batch.column(0).to_pylist()
                records += len(values)
                digest += sum(map(xxh3_64_intdigest, values))
    return shown(records, digest), files, row_groups


def shown(records: int, digest: int) -> str:
    """Return that number of records and that sum of their values' hashes as text."""
    return f"{records} records, xxh3 {digest & _MASK:016x}"


def make_topics(brokers: str, names: Sequence[str], partitions: int) -> None:
    """Create topics of that many partitions without retention by age, and wait until the broker shows all of them with
    leaders.

    With 10,000 topics that takes longer than a producer waits.

    Raises:
        RuntimeError: if it does not show them.
    """
    admin = AdminClient({"bootstrap.servers": brokers})
    for begin in range(0, len(names), 200):
        requested = [
            NewTopic(name, partitions, 1, config={"retention.ms": "-1"}) for name in names[begin : begin + 200]
        ]
        for future in admin.create_topics(requested, request_timeout=60).values():
            future.result()
    deadline_s = time.monotonic() + _SHOWN_WITHIN_S
    while missing := set(names) - _led(admin):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{len(missing)} topics have no leaders: {sorted(missing)[:1]}")
        time.sleep(0.2)


def _led(admin: AdminClient) -> set[str]:
    topics = admin.list_topics(timeout=60).topics
    return {
        name
        for name, topic_metadata in topics.items()
        if all(metadata.leader >= 0 for metadata in topic_metadata.partitions.values())
    }


NOTHING = shown(0, 0)
"""The digest of no records."""
