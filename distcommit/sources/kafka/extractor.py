"""Extractor of Kafka work units, with one consumer per task attempt.

Each assignment is costly, so small work units are assigned together, as a *window*. A large work unit is a window of
its own. Once half of a window's messages were yielded, the next window is assigned. If all messages arrive before that,
nothing is assigned, because librdkafka would continue to fetch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

import pyarrow as pa
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient

from distcommit.core.errors import SourceError, TransientError
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.watermark import Watermark, at_or_past
from distcommit.core.work_units import SkippedRange, WorkUnit
from distcommit.sources.kafka import client as kafka_client
from distcommit.sources.kafka.client import ClientLog, KafkaConnection
from distcommit.sources.kafka.message_sorting import BATCH_RECORDS, Arrivals, Buffer, ranges_of, topic_of
from distcommit.sources.kafka.read_topic_ids import topic_ids
from distcommit.sources.kafka.topics import PartitionName, UnknownTopicId

__all__ = ["KafkaExtraction", "KafkaExtractor"]

WINDOW_PARTITIONS = 256
WINDOW_RECORDS = 50_000
WINDOW_BYTES = 64 << 20


class KafkaExtractor(Extractor):
    """Extractor whose consumer never subscribes.

    Raises:
        TransientError: by the constructor, if no broker responds.
        ConfigurationError: by the constructor, if librdkafka rejects the settings.
    """

    def __init__(self, connection: KafkaConnection, idle_timeout_s: float) -> None:
        self._connection, self._idle_timeout_s = connection, idle_timeout_s
        self._notes = ClientLog(connection)
        self._consumer = connection.consumer(self._notes)
        self._units: tuple[WorkUnit, ...] = ()
        self._indices: dict[tuple[str, str], int] = {}
        self._next_index = 0
        self._buffers: dict[tuple[str, str], Buffer] = {}
        self._current: Buffer | None = None
        self._arrivals = Arrivals(connection, self._notes)
        self._assigned: set[PartitionName] = set()
        self._idle_s = 0.0
        self._window_records = WINDOW_RECORDS
        self._lost: TransientError | None = None
        # This request also makes the first assignment a second faster.
        self._topics = frozenset(connection.metadata(self._consumer, self._notes, TransientError).topics)

    def announce(self, units: Sequence[WorkUnit]) -> None:
        self._units = tuple(units)
        self._indices = {_name(unit): index for index, unit in enumerate(self._units)}
        self._next_index = len(self._units)

    def extract(self, unit: WorkUnit) -> KafkaExtraction:
        if self._lost is not None:
            raise self._lost
        if self._current is not None:
            self._arrivals.drop(self._current, SourceError("the work unit is no longer being read"))
        buffer = self._buffers.pop(_name(unit), None)
        if buffer is None or buffer.unit != unit:
            self._buffers.clear()
            index = self._indices.get(_name(unit), len(self._units))
            announced = self._units[index : index + 1] == (unit,)
            self._next_index = index if announced else self._next_index
            self._open_window(self._coming() if announced else [unit])
            buffer = self._buffers.pop(_name(unit))
        self._current = buffer
        self._sort_arrived()
        return KafkaExtraction(self, buffer)

    def close(self) -> None:
        self._buffers.clear()
        kafka_client.close_consumer(self._consumer)

    def wait_for_messages(self, buffer: Buffer) -> None:
        """Wait up to 0.1 s for messages, and sort those that arrive. After the idle timeout, fail the waiting work
        units by an error in their buffers."""
        began_s = time.monotonic()
        first = self._consumer.poll(0.1)  # consume() would always wait for its full timeout
        waited_s = time.monotonic() - began_s
        if first is not None and self._sort([first, *self._consumer.consume(BATCH_RECORDS, 0)]):
            self._idle_s = 0
            self._keep_bounded(buffer)
        else:
            self._idle_s += waited_s
            if self._idle_s >= self._idle_timeout_s:
                self._give_up()
        self._assign_next()

    def check_topic(self, buffer: Buffer) -> None:
        """Check by its id that the topic was not recreated since planning.

        A recreated topic has other records at the same offsets. Call this after the last message has arrived. One
        request checks all complete work units.

        Raises:
            SourceError: if the topic was recreated.
            TransientError: if Kafka does not return the id.
        """
        if buffer.is_of_topic:
            return
        arrived = [other for other in self._buffers.values() if not (other.unfinished or other.is_of_topic)]
        ids = topic_ids(self._connection, self._admin, {topic_of(other.unit) for other in (buffer, *arrived)})
        for other in (buffer, *arrived):  # records that arrive later need another check
            other.is_of_topic = ids[topic_of(other.unit)] == other.unit.low.incarnation and not other.unfinished
        actual, planned, urn = ids[topic_of(buffer.unit)], buffer.unit.low.incarnation, buffer.unit.dataset_urn
        if isinstance(actual, UnknownTopicId):
            raise TransientError(
                "Kafka does not return the topic's id, so that a recreated topic can't be ruled out",
                id="SOURCE_SERVER_UNAVAILABLE",
                dataset=urn,
                expected=f"topic id {planned}",
                found=actual.error,
                todo="check the topic and its brokers, then run again",
            )
        if actual != planned:
            raise SourceError(
                "the topic was deleted and recreated while it was read",
                id="SOURCE_READ_INCOMPLETE",
                dataset=urn,
                expected=f"topic id {planned}",
                found=f"topic id {actual or 'unknown'}",
                todo="run again: planning reports the remedy",
            )

    def _sort_arrived(self) -> None:
        if self._arrivals.ranges and (arrived := self._consumer.consume(BATCH_RECORDS, 0)):
            self._sort(arrived)
            if self._current is not None:
                self._keep_bounded(self._current)
        self._assign_next()

    def _keep_bounded(self, buffer: Buffer) -> None:
        """If more than `WINDOW_BYTES` are buffered, discard later work units' messages, and make the next windows
        smaller."""
        buffers = list(self._buffers.values())
        if buffer.bytes + sum(other.bytes for other in buffers) <= WINDOW_BYTES:
            return
        self._window_records = (len(buffer.messages) + sum(len(other.messages) for other in buffers)) // 2
        self._buffers.clear()
        for other in buffers:
            self._arrivals.drop(other, SourceError("discarded: too much was read ahead"))

    def _assign_next(self) -> None:
        """Assign the next window once all messages of the present one have arrived. While more than half a window
        waits, assign nothing, so that nothing is fetched."""
        if self._arrivals.ranges or self._lost is not None:
            return
        records = sum(len(buffer.messages) for buffer in self._buffers.values())
        if len(self._buffers) <= WINDOW_PARTITIONS // 2 and records <= self._window_records // 2:
            self._open_window(self._coming())
        else:
            self._assign_nothing()

    @cached_property
    def _admin(self) -> AdminClient:
        return self._connection.admin(self._notes)

    def _coming(self) -> list[WorkUnit]:
        window: list[WorkUnit] = []
        names: set[PartitionName] = set()
        records = 0
        for unit in islice(self._units, self._next_index, None):
            ranges = ranges_of(unit)
            records += sum(end - low for _, low, end in ranges)
            full = records > self._window_records or len(names) >= WINDOW_PARTITIONS or len(window) >= WINDOW_PARTITIONS
            if window and (full or any(name in names for name, _, _ in ranges)):
                break
            window.append(unit)
            names.update(name for name, _, _ in ranges)
        self._next_index += len(window)
        return window

    def _open_window(self, units: Sequence[WorkUnit]) -> None:
        buffers = {_name(unit): Buffer.of(unit) for unit in units}
        self._buffers |= buffers
        self._arrivals.expect(buffers.values(), self._topics)
        self._idle_s = 0
        if ranges := self._arrivals.ranges:
            self._consumer.assign([TopicPartition(*name, expected.next_offset) for name, expected in ranges.items()])
            self._assigned = set(ranges)
        else:
            self._assign_nothing()

    def _sort(self, messages: Sequence[Message]) -> bool:
        progress, beyond = self._arrivals.sort(messages), self._arrivals.beyond
        if ended := beyond & self._assigned:
            self._assigned -= ended
            self._consumer.incremental_unassign(
                [TopicPartition(*name) for name in ended]
            )  # a pause would outlast the assignment
        beyond.clear()
        return progress

    def _assign_nothing(self) -> None:
        if self._assigned:
            self._consumer.unassign()
            self._assigned = set()

    def _give_up(self) -> None:
        """Fail all waiting work units, and if no broker responds, later ones."""
        self._idle_s = 0
        late = self._arrivals.ranges
        waiting = "; ".join(f"{topic} [{partition}]" for topic, partition in list(late)[:5])
        problem = "Kafka has sent nothing for too long"
        todo = "check the brokers of these partitions, then run again; or raise source.idle_timeout_s"
        if self._notes.has_oversized_message:
            problem = "Kafka has a message that is larger than the client settings allow"
            todo = "raise receive.message.max.bytes in source.client above the topic's max.message.bytes"
        error = TransientError(
            problem,
            id="SOURCE_SERVER_UNAVAILABLE",
            brokers=self._connection.brokers,
            expected=f"progress within {self._idle_timeout_s:g} s in {len(late)} partitions: {waiting}",
            found=self._notes.last or "no error from a broker",
            todo=todo,
        )
        for waited_for in list(late.values()):
            self._arrivals.drop(waited_for.buffer, error)
        try:
            self._connection.metadata(self._consumer, self._notes, TransientError)
        except TransientError as lost:
            self._lost = lost


class KafkaExtraction(Extraction):
    """A work unit's records, in batches of up to 10,000 and about 16 MiB, or less with `source.bytes_per_dataset`."""

    def __init__(self, extractor: KafkaExtractor, buffer: Buffer) -> None:
        self._extractor, self._buffer = extractor, buffer
        self._reached = buffer.unit.low
        self._bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        buffer = self._buffer
        while True:
            while not buffer.ready():
                self._extractor.wait_for_messages(buffer)
            if buffer.error is not None:
                raise buffer.error
            messages = buffer.pop_batch()
            if not messages:
                break
            batch, reached, size = kafka_client.to_batch(messages)
            self._bytes += size
            self._reached = self._reached.advanced(reached)
            yield batch
        self._reached = buffer.unit.expected_high

    def actual_high(self) -> Watermark:
        """Return the position after the yielded batches; raises the errors of `check_topic`."""
        if self._buffer.error is None:
            self._extractor.check_topic(self._buffer)
        return self._reached

    def holes(self) -> list[SkippedRange]:
        reached, holes = self._reached.positions, self._buffer.holes
        passed = [hole for hole in holes if at_or_past(reached[hole.partition], hole.high)]
        if passed:
            self._buffer.holes = [hole for hole in holes if not at_or_past(reached[hole.partition], hole.high)]
        return passed

    def bytes_read(self) -> int:
        return self._bytes


def _name(unit: WorkUnit) -> tuple[str, str]:
    return unit.dataset_urn, unit.work_unit_id
