"""Reads work units from Kafka: one consumer per task attempt, small work units read ahead together.

Partitions of the coming work units are assigned as one *window*, since switching the assignment costs more than reading
a few records; a large work unit is a window of its own and streams. Once all of a window has arrived, nothing is
assigned: librdkafka would go on to ask the brokers for all of it again and again. When half of it has been handed out,
the next window is assigned, so that it is fetched meanwhile.
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
from distcommit.core.work import SkippedRange, WorkUnit
from distcommit.sources.kafka import client as kafka_client
from distcommit.sources.kafka.arrivals import BATCH_RECORDS, Arrivals, Buffer, ranges_of, topic_of
from distcommit.sources.kafka.client import ClientNotes, KafkaConnection
from distcommit.sources.kafka.names import PartitionName, Unanswered
from distcommit.sources.kafka.topic_ids import topic_ids

__all__ = ["KafkaExtraction", "KafkaExtractor"]

WINDOW_PARTITIONS = 256
WINDOW_RECORDS = 50_000
WINDOW_BYTES = 64 << 20


class KafkaExtractor(Extractor):
    """Reads work units with one consumer that is assigned, never subscribed.

    Raises:
        TransientError: if no broker answers.
        ConfigurationError: if librdkafka refuses the client settings.
    """

    def __init__(self, connection: KafkaConnection, idle_timeout_s: float) -> None:
        self._connection, self._idle_timeout_s = connection, idle_timeout_s
        self._notes = ClientNotes(connection)
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
        # Asking also spares the first assignment a second.
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
        self._look()
        return KafkaExtraction(self, buffer)

    def close(self) -> None:
        self._buffers.clear()
        kafka_client.close_consumer(self._consumer)

    def pump(self, buffer: Buffer) -> None:
        """Waits a moment for messages and sorts them into their buffers; `buffer` is the one that is waited for."""
        began_s = time.monotonic()
        first = self._consumer.poll(0.1)  # consume() would wait out its timeout
        waited_s = time.monotonic() - began_s
        if first is not None and self._sort([first, *self._consumer.consume(BATCH_RECORDS, 0)]):
            self._idle_s = 0
            self._keep_bounded(buffer)
        else:
            self._idle_s += waited_s
            if self._idle_s >= self._idle_timeout_s:
                self._give_up()
        self._go_on()

    def check_topic(self, buffer: Buffer) -> None:
        """Makes sure that what has come for a work unit is of the topic it was planned on; the same offsets of another
        topic are other records. Asked after they have come, since a topic may be made again at any time before. Others
        that have arrived are asked for as well.

        Raises:
            SourceError: if the topic was made again.
            TransientError: if Kafka does not tell.
        """
        if buffer.is_of_topic:
            return
        arrived = [other for other in self._buffers.values() if not (other.unfinished or other.is_of_topic)]
        found = topic_ids(self._connection, self._admin, {topic_of(other.unit) for other in (buffer, *arrived)})
        for other in (buffer, *arrived):  # what is still to come has to be asked for again
            other.is_of_topic = found[topic_of(other.unit)] == other.unit.low.incarnation and not other.unfinished
        answer, planned, urn = found[topic_of(buffer.unit)], buffer.unit.low.incarnation, buffer.unit.dataset_urn
        if isinstance(answer, Unanswered):
            raise TransientError(
                "Kafka does not tell whether a topic is still the one that was planned",
                dataset=urn,
                expected=f"topic id {planned}",
                found=answer.error,
                todo="see to the topic and its brokers, then run again",
            )
        if answer != planned:
            raise SourceError(
                "the topic was deleted and made again while it was read",
                dataset=urn,
                expected=f"topic id {planned}",
                found=f"topic id {answer or 'unknown'}",
                todo="run again: the plan tells what to do",
            )

    def _look(self) -> None:
        """Takes what has arrived of a window, which nobody waits for yet."""
        if self._arrivals.ranges and (arrived := self._consumer.consume(BATCH_RECORDS, 0)):
            self._sort(arrived)
            if self._current is not None:
                self._keep_bounded(self._current)
        self._go_on()

    def _keep_bounded(self, buffer: Buffer) -> None:
        """Lets go of what was read ahead of this buffer if it is too much: records are larger than thought, and a
        window has fewer of them from now on."""
        others = list(self._buffers.values())
        if buffer.bytes + sum(other.bytes for other in others) <= WINDOW_BYTES:
            return
        self._window_records = (len(buffer.messages) + sum(len(other.messages) for other in others)) // 2
        self._buffers.clear()
        for other in others:
            self._arrivals.drop(other, SourceError("read ahead in vain"))

    def _go_on(self) -> None:
        """Once all has arrived that was assigned, what comes next is, if little is left; until then, nothing."""
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
        """The next window: one work unit, and those after it as long as they are small and of other partitions."""
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
        """Assigns the partitions of these work units and of no others."""
        buffers = {_name(unit): Buffer.of(unit) for unit in units}
        self._buffers |= buffers
        self._arrivals.expect(buffers.values(), self._topics)
        self._idle_s = 0
        if ranges := self._arrivals.ranges:
            self._consumer.assign([TopicPartition(*name, found.next_offset) for name, found in ranges.items()])
            self._assigned = set(ranges)
        else:
            self._assign_nothing()

    def _sort(self, messages: Sequence[Message]) -> bool:
        """Puts messages into the buffers they belong to; whether any range got further. What comes of a partition that
        was read to its end, or given up, is fetched no longer."""
        progress, beyond = self._arrivals.sort(messages), self._arrivals.beyond
        if ended := beyond & self._assigned:
            self._assigned -= ended
            self._consumer.incremental_unassign([TopicPartition(*name) for name in ended])  # a pause would outlive it
        beyond.clear()
        return progress

    def _assign_nothing(self) -> None:
        if self._assigned:
            self._consumer.unassign()
            self._assigned = set()

    def _give_up(self) -> None:
        """Fails all work units that wait, because nothing has come for too long; all others too if nobody answers."""
        self._idle_s = 0
        late = self._arrivals.ranges
        waiting = "; ".join(f"{topic} [{partition}]" for topic, partition in list(late)[:5])
        what = "Kafka has sent nothing for too long"
        todo = "see to the brokers of these partitions, then run again; or raise source.idle_timeout_s"
        if self._notes.tells_of_large_message:
            what = "Kafka has a message that is larger than the client settings allow"
            todo = "raise receive.message.max.bytes in source.client, to more than the topic's max.message.bytes"
        error = TransientError(
            what,
            brokers=self._connection.brokers,
            expected=f"progress within {self._idle_timeout_s:g} s in {len(late)} partitions: {waiting}",
            found=self._notes.last or "silence",
            todo=todo,
        )
        for found in list(late.values()):
            self._arrivals.drop(found.buffer, error)
        try:
            self._connection.metadata(self._consumer, self._notes, TransientError)
        except TransientError as lost:
            self._lost = lost


class KafkaExtraction(Extraction):
    """One work unit, in batches of up to 10,000 records or about 16 MiB."""

    def __init__(self, extractor: KafkaExtractor, buffer: Buffer) -> None:
        self._extractor, self._buffer = extractor, buffer
        self._reached = buffer.unit.low
        self._bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        buffer = self._buffer
        while True:
            while not buffer.ready():
                self._extractor.pump(buffer)
            if buffer.error is not None:
                raise buffer.error
            messages = buffer.take()
            if not messages:
                break
            batch, reached, size = kafka_client.to_batch(messages)
            self._bytes += size
            self._reached = self._reached.advanced(reached)
            yield batch
        self._reached = buffer.unit.expected_high

    def actual_high(self) -> Watermark:
        """How far was read.

        Raises:
            SourceError: if the topic was made again meanwhile.
            TransientError: if Kafka does not tell.
        """
        if self._buffer.error is None:
            self._extractor.check_topic(self._buffer)
        return self._reached

    def holes(self) -> list[SkippedRange]:
        reached, left = self._reached.positions, self._buffer.holes
        passed = [hole for hole in left if at_or_past(reached[hole.partition], hole.high)]
        if passed:
            self._buffer.holes = [hole for hole in left if not at_or_past(reached[hole.partition], hole.high)]
        return passed

    def bytes_read(self) -> int:
        return self._bytes


def _name(unit: WorkUnit) -> tuple[str, str]:
    return unit.dataset_urn, unit.work_unit_id
