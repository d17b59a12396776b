"""Reading from Kafka with the real protocol, against the mock broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from threading import Event
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer

from distcommit.app.demo.broker import MockBroker
from distcommit.core.errors import SourceError, TransientError
from distcommit.core.interfaces.source import SourceState
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import WorkUnit
from distcommit.sources.kafka import extractor as kafka_extractor
from distcommit.sources.kafka.batch_schema import BATCH_SCHEMA
from distcommit.sources.kafka.client import close_consumer
from distcommit.sources.kafka.extractor import WINDOW_BYTES, KafkaExtraction, KafkaExtractor
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.kafka.topics import MAX_BYTES

TOPICS = 100
BIG = 30_000
WIDE = 18


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    topics = {f"small{number}": 4 for number in range(TOPICS)}
    with MockBroker.start({**topics, "big": 2, "txn": 2, "wide": WIDE, "odd": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
        for topic in topics:
            for partition in range(4):
                for number in range(3):
                    producer.produce(topic, f"{partition}-{number}", partition=partition)
            producer.poll(0)
        for number in range(BIG):
            producer.produce("big", str(number), partition=0)
        producer.produce("big", "x", partition=1)
        for partition in range(WIDE):  # the mock keeps 5 MB of a partition
            for _ in range(45):
                producer.produce("wide", b"x" * 100_000, partition=partition)
            producer.flush(20)
        producer.produce("odd", None, key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=1_700_000_000_123)
        producer.produce("odd", b"v")
        assert producer.flush(20) == 0
        writer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        writer.init_transactions(20)
        for number in range(2):
            writer.begin_transaction()
            writer.produce("txn", str(number), partition=0)
            writer.produce("txn", str(number), partition=1)
            writer.commit_transaction(20)
        del producer, writer
        yield broker


def source(brokers: str, **settings: object) -> KafkaSource:
    return KafkaSource.model_validate({"type": "kafka", "brokers": brokers, "topic_patterns": [".*"], **settings})


@pytest.fixture
def extractor(broker: MockBroker) -> Iterator[KafkaExtractor]:
    extractor = source(broker.bootstrap_servers).open()
    yield extractor
    extractor.close()
    extractor.close()


def unit(topic: str, ordinal: int = 0, max_bytes: int = 0, **ranges: tuple[int, int]) -> WorkUnit:
    """Return a work unit with ranges by partition: p0=(low, high)."""
    bounds = {name.removeprefix("p"): both for name, both in ranges.items()}
    return WorkUnit(
        work_unit_id=f"{topic}-{ordinal}",
        dataset_urn=topic,
        low=Watermark({p: low for p, (low, _) in bounds.items()}),
        expected_high=Watermark({p: high for p, (_, high) in bounds.items()}),
        size=sum(high - low for low, high in bounds.values()),
        properties={MAX_BYTES: str(max_bytes)} if max_bytes else {},
    )


def small_units() -> list[WorkUnit]:
    return [unit(f"small{number}", p0=(0, 3), p1=(1, 3), p2=(0, 2), p3=(2, 2)) for number in range(TOPICS)]


SMALL = [("0", 0), ("0", 1), ("0", 2), ("1", 1), ("1", 2), ("2", 0), ("2", 1)]


def read(extractor: KafkaExtractor, unit: WorkUnit) -> list[pa.RecordBatch]:
    """Return all batches of a work unit, which must be read to its end."""
    extraction = extractor.extract(unit)
    assert extraction.actual_high() == unit.low
    batches = list(extraction)
    assert extraction.actual_high() == unit.expected_high
    assert all(batch.schema == BATCH_SCHEMA for batch in batches)
    return batches


def offsets(batches: list[pa.RecordBatch]) -> dict[str, list[int]]:
    """Return the offsets by partition, in the order of reading."""
    offsets_by_partition: dict[str, list[int]] = {}
    for batch in batches:
        for row in batch.select(["kafka_partition", "kafka_offset"]).to_pylist():
            offsets_by_partition.setdefault(str(row["kafka_partition"]), []).append(row["kafka_offset"])
    return offsets_by_partition


def holes(extraction: KafkaExtraction) -> list[tuple[str, int, int]]:
    """Return partition, first offset and end of each range without a record."""
    skipped_ranges = extraction.holes()
    assert all(hole.is_hole for hole in skipped_ranges)
    return sorted((hole.partition, as_offset(hole.low), as_offset(hole.high)) for hole in skipped_ranges)


SMALL_OFFSETS = {"0": [0, 1, 2], "1": [1, 2], "2": [0, 1]}


def test_many_small_units_are_read_completely_and_separately(extractor: KafkaExtractor) -> None:
    units = small_units()
    extractor.announce(units)
    for one_unit in units:
        assert offsets(read(extractor, one_unit)) == SMALL_OFFSETS


def test_extractor_requests_nothing_while_it_returns_fetched_records(
    extractor: KafkaExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_extractor, "WINDOW_PARTITIONS", 12)  # the partitions of four units
    units = small_units()[:40]
    extractor.announce(units)
    asked_for, waiting = [], []
    for one_unit in units:
        assert offsets(read(extractor, one_unit)) == SMALL_OFFSETS
        Event().wait(0.03)  # the time that a write might take
        extractor._sort_arrived()
        asked_for.append(len(extractor._consumer.assignment()))
        waiting.append(len(extractor._buffers))
    assert asked_for.count(0) > 20
    assert max(waiting) <= 6 + 4


def test_partition_is_no_longer_fetched_after_more_than_its_range_has_arrived(
    extractor: KafkaExtractor,
) -> None:
    extractor.announce([unit("big", p0=(0, 3)), unit("small0", p0=(0, 99))])  # it has only three records
    assert offsets(read(extractor, unit("big", p0=(0, 3)))) == {"0": [0, 1, 2]}
    ends_s = time.monotonic() + 10
    while any(assigned.topic == "big" for assigned in extractor._consumer.assignment()) and time.monotonic() < ends_s:
        extractor._sort_arrived()
    assert [(assigned.topic, assigned.partition) for assigned in extractor._consumer.assignment()] == [("small0", 0)]


def test_unannounced_units_are_read(extractor: KafkaExtractor) -> None:
    for one_unit in small_units()[:3]:
        assert offsets(read(extractor, one_unit)) == SMALL_OFFSETS


def test_columns_contain_all_fields_of_a_kafka_record(extractor: KafkaExtractor) -> None:
    extraction = extractor.extract(unit("odd", p0=(0, 2)))
    first, second = [row for batch in extraction for row in batch.to_pylist()]
    assert (first["key"], first["value"]) == (b"k", None)
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert first["kafka_timestamp"].timestamp() == 1_700_000_000.123
    assert (first["kafka_timestamp_type"], first["kafka_partition"], first["kafka_offset"]) == ("create", 0, 0)
    assert (second["key"], second["value"], second["headers"]) == (None, b"v", None)
    assert extraction.bytes_read() == 5  # with the headers


def test_big_unit_streams_in_bounded_batches(extractor: KafkaExtractor) -> None:
    batches = read(extractor, unit("big", p0=(100, BIG), p1=(0, 1)))
    assert len(batches) >= 3
    assert max(batch.num_rows for batch in batches) <= 10_000
    assert offsets(batches) == {"0": list(range(100, BIG)), "1": [0]}


def test_large_records_are_batched_by_bytes_and_do_not_exceed_the_window(extractor: KafkaExtractor) -> None:
    assert WIDE * 45 * 100_000 > WINDOW_BYTES
    bounds = [Watermark({str(partition): offset}) for partition in range(WIDE) for offset in (0, 45)]
    units = [
        WorkUnit(str(ordinal), "wide", low, high, 45)
        for ordinal, (low, high) in enumerate(zip(bounds[::2], bounds[1::2], strict=True))
    ]
    extractor.announce(units)
    for number, one_unit in enumerate(units):
        batches = read(extractor, one_unit)
        assert offsets(batches) == {str(number): list(range(45))}
        assert max(batch.nbytes for batch in batches) < 20 << 20
    assert offsets(read(extractor, unit("wide", p0=(0, 45), p17=(3, 5)))) == {
        "0": list(range(45)),
        "17": [3, 4],
    }


def test_records_that_arrive_between_reads_do_not_fill_the_memory(
    extractor: KafkaExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_extractor, "WINDOW_BYTES", 8 << 20)
    units = [unit("wide", number, 0, **{f"p{number}": (0, 45)}) for number in range(WIDE)]
    extractor.announce(units)
    extraction = extractor.extract(units[0])
    held = []
    for _ in range(20):
        Event().wait(0.03)
        extractor._sort_arrived()
        held.append(sum(buffer.bytes for buffer in extractor._buffers.values()))
    assert max(held) <= 8 << 20
    assert offsets(list(extraction)) == {"0": list(range(45))}
    for number, one_unit in enumerate(units[1:], 1):
        assert offsets(read(extractor, one_unit)) == {str(number): list(range(45))}


def test_consecutive_ranges_of_one_partition_are_read_in_order(extractor: KafkaExtractor) -> None:
    units = [unit("big", number, p0=(number * 1000, number * 1000 + 1000)) for number in range(5)]
    extractor.announce(units)
    for number, one_unit in enumerate(units):
        assert offsets(read(extractor, one_unit)) == {"0": list(range(number * 1000, number * 1000 + 1000))}


def test_early_stop_returns_the_exact_position_and_leaves_no_assignment_behind(extractor: KafkaExtractor) -> None:
    units = [unit("big", 0, p0=(0, BIG), p1=(0, 1)), *small_units()[:3], unit("big", 1, p0=(5, 10))]
    extractor.announce(units)
    extraction = extractor.extract(units[0])
    read_rows = 0
    for batch in extraction:
        read_rows = offsets([batch])["0"][-1] + 1
        break
    assert 0 < read_rows <= 10_000
    assert extraction.actual_high().positions["0"] == read_rows
    assert extraction.actual_high().positions["1"] in (0, 1)
    for one_unit in units[1:4]:
        assert offsets(read(extractor, one_unit)) == SMALL_OFFSETS
    assert offsets(read(extractor, units[4])) == {"0": [5, 6, 7, 8, 9]}
    with pytest.raises(SourceError, match="no longer being read"):
        list(extraction)
    assert extraction.actual_high().positions["0"] == read_rows


def test_byte_limit_makes_small_batches(extractor: KafkaExtractor) -> None:
    extraction = extractor.extract(unit("big", max_bytes=100, p0=(10_000, BIG)))
    batch = next(iter(extraction))
    assert batch.num_rows == 20
    assert extraction.bytes_read() == 100
    assert extraction.actual_high() == Watermark({"0": 10_020})


def test_trailing_control_records_count_as_read(broker: MockBroker, extractor: KafkaExtractor) -> None:
    _, plan = source(broker.bootstrap_servers, topic_patterns=[], topics=["txn"]).plan(bool, SourceState())
    (planned,) = getattr(plan, "work_units")  # noqa: B009 - a DatasetProblem fails here
    assert planned.expected_high == Watermark({"0": 4, "1": 4})
    extraction = extractor.extract(planned)
    assert offsets(list(extraction)) == {"0": [0, 2], "1": [0, 2]}
    assert holes(extraction) == [("0", 1, 2), ("0", 3, 4), ("1", 1, 2), ("1", 3, 4)]
    assert read(extractor, unit("txn", 1, p0=(3, 4))) == []


def test_holes_are_reported_once_and_only_below_the_returned_position(extractor: KafkaExtractor) -> None:
    extraction = extractor.extract(unit("txn", max_bytes=1, p0=(0, 4)))
    batches = iter(extraction)
    assert offsets([next(batches)]) == {"0": [0]}
    assert holes(extraction) == []
    assert offsets([next(batches)]) == {"0": [2]}
    assert extraction.actual_high() == Watermark({"0": 3})
    assert holes(extraction) == [("0", 1, 2)]
    assert list(batches) == []
    assert holes(extraction) == [("0", 3, 4)]
    assert holes(extraction) == []


def test_range_without_a_record_is_one_hole(extractor: KafkaExtractor) -> None:
    extraction = extractor.extract(unit("txn", p0=(3, 4), p1=(1, 2)))
    assert list(extraction) == []
    assert holes(extraction) == [("0", 3, 4), ("1", 1, 2)]


def test_range_that_ends_in_a_gap_inside_the_log_is_complete(extractor: KafkaExtractor) -> None:
    assert offsets(read(extractor, unit("txn", p0=(0, 2), p1=(1, 2)))) == {"0": [0]}


def test_unit_is_read_again_after_success_and_out_of_order(extractor: KafkaExtractor) -> None:
    units = small_units()
    extractor.announce(units)
    for number in (0, 1, 0, 50, 99, 2, 2):
        assert offsets(read(extractor, units[number])) == SMALL_OFFSETS


def test_unit_with_nothing_to_read_is_complete(extractor: KafkaExtractor) -> None:
    units = [unit("small0", p0=(3, 3)), unit("small1", p0=(0, 0)), unit("small2", p0=(0, 3))]
    extractor.announce(units)
    assert [sum(batch.num_rows for batch in read(extractor, one_unit)) for one_unit in units] == [0, 0, 3]


def test_bad_units_in_a_window_fail_separately_in_their_turn(broker: MockBroker) -> None:
    extractor = source(broker.bootstrap_servers, idle_timeout_s=1).open()
    expired = unit("txn", p0=(500, 600))
    missing = unit("nowhere", p0=(0, 5))
    short = unit("odd", p0=(0, 9))
    units = [*small_units()[:5], expired, missing, short, *small_units()[5:20]]
    extractor.announce(units)
    errors: dict[str, str] = {}
    for one_unit in units:
        if one_unit.dataset_urn.startswith("small"):
            assert offsets(read(extractor, one_unit)) == SMALL_OFFSETS
            continue
        extraction = extractor.extract(one_unit)
        with pytest.raises((SourceError, TransientError)) as failure:
            list(extraction)
        errors[one_unit.dataset_urn] = str(failure.value)
    assert "no longer has the planned offsets" in errors["txn"]
    assert "does not exist" in errors["nowhere"]
    assert "odd [0] ends at offset 2, before 9" in errors["odd"]
    extractor.close()


def test_message_too_large_for_the_client_is_reported(broker: MockBroker) -> None:
    client = {"message.max.bytes": 50_000, "fetch.max.bytes": 50_000, "receive.message.max.bytes": 60_000}
    extractor = source(broker.bootstrap_servers, idle_timeout_s=1, client=client).open()
    with pytest.raises(
        TransientError, match=r"larger than the client settings allow.*wide \[0\].*raise receive.message"
    ):
        list(extractor.extract(unit("wide", p0=(0, 45))))
    extractor.close()


def test_consumer_that_never_closes_is_abandoned_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka's `close` can hang after a response that was too large, about once in some hundred times."""
    closing, released = Event(), Event()

    class Stuck:
        def close(self) -> None:
            closing.set()
            released.wait()

    with caplog.at_level(logging.WARNING):
        close_consumer(cast(Consumer, Stuck()), timeout_s=0.2)
    assert closing.is_set()
    assert "was not closed within 0.2 s" in caplog.text
    released.set()


@pytest.mark.thorough
def test_broker_failure_fails_the_remaining_units_without_waiting_for_each() -> None:
    with MockBroker.start({"t": 1}) as mortal:
        extractor = source(mortal.bootstrap_servers, idle_timeout_s=0.5, request_timeout_s=0.5).open()
        mortal.close()
        units = [unit("t", number, p0=(number, number + 1)) for number in range(200)]
        extractor.announce(units)
        with pytest.raises(TransientError, match="SOURCE_SERVER_UNAVAILABLE: Kafka has sent nothing for too long"):
            list(extractor.extract(units[0]))
        for one_unit in units[1:]:
            with pytest.raises(TransientError, match="can't be reached"):
                extractor.extract(one_unit)
        extractor.close()
