"""Reads work units from Kafka: one consumer per task attempt, small work units read ahead together.

Partitions of the coming work units are assigned as one *window*, since switching the assignment costs more than reading
a few records; a large work unit is a window of its own and streams. Once all of a window has arrived, nothing is
assigned: librdkafka would go on to ask the brokers for all of it again and again. When half of it has been handed out,
the next window is assigned, so that it is fetched meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from distcommit.model.errors import DistcommitError, SourceError, TransientError
from distcommit.model.source import Extraction, Extractor
from distcommit.model.watermark import Watermark, as_offset, at_or_past
from distcommit.model.work import SkippedRange, WorkUnit
from distcommit.sources.kafka import client as kafka_client
from distcommit.sources.kafka.client import ClientNotes, KafkaConnection
from distcommit.sources.kafka.names import MAX_BYTES, PartitionName, Unanswered, no_such_topic
from distcommit.sources.kafka.topic_ids import topic_ids

__all__ = ["KafkaExtraction", "KafkaExtractor"]

BATCH_RECORDS = 10_000
BATCH_BYTES = 16 << 20
WINDOW_PARTITIONS = 256
WINDOW_RECORDS = 50_000
WINDOW_BYTES = 64 << 20


@dataclass(slots=True, eq=False)
class _Buffer:
    """What has arrived of one work unit and was not handed out yet. `bytes` and `limit_bytes` count values only.

    `is_of_topic`: all of it surely comes from the topic that the work unit was planned on.
    """

    unit: WorkUnit
    limit_bytes: int
    is_of_topic: bool
    messages: list[Message] = field(default_factory=list)
    holes: list[SkippedRange] = field(default_factory=list)
    bytes: int = 0
    unfinished: set[PartitionName] = field(default_factory=set)
    error: DistcommitError | None = None

    def ready(self) -> bool:
        enough = len(self.messages) >= BATCH_RECORDS or self.bytes >= self.limit_bytes
        return enough or not self.unfinished or self.error is not None

    def take(self) -> list[Message]:
        """The messages of the next batch: at least one if there are any."""
        taken = self.messages[:BATCH_RECORDS]
        if self.bytes > self.limit_bytes:
            sums = enumerate(accumulate(map(len, taken)), 1)
            taken = taken[: next((count for count, size in sums if size >= self.limit_bytes), len(taken))]
        del self.messages[: len(taken)]
        self.bytes -= sum(map(len, taken)) if self.messages else self.bytes
        return taken


@dataclass(slots=True, eq=False)
class _Range:
    """A partition's offsets from `next_offset` to `end`, on their way into a buffer."""

    buffer: _Buffer
    next_offset: int
    end: int

    def pass_to(self, partition: int, offset: int) -> None:
        """Notes that there is no record from the next offset up to this one."""
        incarnation = self.buffer.unit.low.incarnation
        self.buffer.holes.append(SkippedRange(str(partition), self.next_offset, offset, "no record", True, incarnation))


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
        self._buffers: dict[tuple[str, str], _Buffer] = {}
        self._current: _Buffer | None = None
        self._ranges: dict[PartitionName, _Range] = {}
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
            self._drop(self._current, SourceError("the work unit is no longer being read"))
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

    def pump(self, buffer: _Buffer) -> None:
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

    def check_topic(self, buffer: _Buffer) -> None:
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
        found = topic_ids(self._connection, self._admin, {_topic_of(other.unit) for other in (buffer, *arrived)})
        for other in (buffer, *arrived):  # what is still to come has to be asked for again
            other.is_of_topic = found[_topic_of(other.unit)] == other.unit.low.incarnation and not other.unfinished
        answer, planned, urn = found[_topic_of(buffer.unit)], buffer.unit.low.incarnation, buffer.unit.dataset_urn
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
        if self._ranges and (arrived := self._consumer.consume(BATCH_RECORDS, 0)):
            self._sort(arrived)
            if self._current is not None:
                self._keep_bounded(self._current)
        self._go_on()

    def _keep_bounded(self, buffer: _Buffer) -> None:
        """Lets go of what was read ahead of this buffer if it is too much: records are larger than thought, and a
        window has fewer of them from now on."""
        others = list(self._buffers.values())
        if buffer.bytes + sum(other.bytes for other in others) <= WINDOW_BYTES:
            return
        self._window_records = (len(buffer.messages) + sum(len(other.messages) for other in others)) // 2
        self._buffers.clear()
        for other in others:
            self._drop(other, SourceError("read ahead in vain"))

    def _go_on(self) -> None:
        """Once all has arrived that was assigned, what comes next is, if little is left; until then, nothing."""
        if self._ranges or self._lost is not None:
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
            ranges = _ranges_of(unit)
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
        self._ranges = {}
        for unit in units:
            limit_bytes = min(BATCH_BYTES, int(unit.properties.get(MAX_BYTES, 0)) or BATCH_BYTES)
            is_of_topic = not unit.low.incarnation
            buffer = self._buffers[_name(unit)] = _Buffer(unit, limit_bytes, is_of_topic)
            for name, low, end in _ranges_of(unit):
                if name[0] not in self._topics:
                    buffer.error = no_such_topic(name[0])  # an assignment would never say so
                    break
                self._ranges[name] = _Range(buffer, low, end)
                buffer.unfinished.add(name)
        self._idle_s = 0
        if self._ranges:
            self._consumer.assign([TopicPartition(*name, found.next_offset) for name, found in self._ranges.items()])
            self._assigned = set(self._ranges)
        else:
            self._assign_nothing()

    def _assign_nothing(self) -> None:
        if self._assigned:
            self._consumer.unassign()
            self._assigned = set()

    def _sort(self, messages: Sequence[Message]) -> bool:
        """Puts messages into the buffers they belong to; whether any range got further."""
        progress = False
        for name, run in kafka_client.runs_of(messages):
            fitting = self._take_run(name, run)
            progress |= fitting > 0
            for message in run[fitting:]:
                progress |= self._take(name, message)
        return progress

    def _take_run(self, name: PartitionName, run: Sequence[Message]) -> int:
        """Takes the first messages of a partition if they are those that are next, as nearly all are; how many."""
        found = self._ranges.get(name)
        if found is None or any(map(Message.error, run)):
            return 0
        low, fitting = found.next_offset, run[: found.end - found.next_offset]
        if list(map(Message.offset, fitting)) != list(range(low, low + len(fitting))):
            return 0
        found.next_offset += len(fitting)
        found.buffer.messages += fitting
        found.buffer.bytes += sum(map(len, fitting))
        if found.next_offset >= found.end:
            self._finish(name, found)
        return len(fitting)

    def _take(self, name: PartitionName, message: Message) -> bool:
        """Takes one message, whatever it says; whether a range got further."""
        offset = -1 if (known := message.offset()) is None else known
        found, error = self._ranges.get(name), message.error()
        if error is not None:
            return self._event(name, found, offset, error)
        if found is None:
            if name in self._assigned:  # read to its end, or given up: stop fetching it
                self._assigned.discard(name)
                self._consumer.incremental_unassign([TopicPartition(*name)])  # a pause would outlive a new assignment
            return False
        if offset < found.next_offset:
            text = f"Kafka went back to offset {offset} of {name[0]} [{name[1]}]"
            self._drop(found.buffer, SourceError(text, expected=f"{found.next_offset} or later"))
        elif offset < found.end:
            if offset > found.next_offset:
                found.pass_to(name[1], offset)
            found.next_offset = offset + 1
            found.buffer.messages.append(message)
            found.buffer.bytes += len(message)
        if offset >= found.end - 1:
            self._finish(name, found)
        return True

    def _event(self, name: PartitionName, found: _Range | None, offset: int, error: KafkaError) -> bool:
        """Handles what librdkafka says of a partition; whether that ended a range."""
        if found is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            if offset >= found.end:
                self._finish(name, found)
                return True
            self._notes.last = f"{name[0]} [{name[1]}] ends at offset {offset}, before {found.end}"
            return False
        expired = error.code() == KafkaError._AUTO_OFFSET_RESET
        failure = (TransientError if error.retriable() else SourceError)(
            "Kafka no longer has the planned offsets" if expired else "Kafka can't deliver a partition",
            dataset=found.buffer.unit.dataset_urn,
            partition=name[1],
            expected=f"offsets {found.next_offset} to {found.end}",
            found=self._connection.masked(f"{error.str()} ({error.name()})"),
            todo="run again: the next plan applies source.expired_offsets" if expired else "see to it, run again",
        )
        self._drop(found.buffer, failure)
        return True

    def _finish(self, name: PartitionName, found: _Range) -> None:
        if found.end > found.next_offset:
            found.pass_to(name[1], found.end)
        self._ranges.pop(name, None)
        found.buffer.unfinished.discard(name)

    def _drop(self, buffer: _Buffer, error: DistcommitError) -> None:
        """Ends a work unit: what still comes of it is ignored."""
        buffer.error = error
        for name in buffer.unfinished:
            self._ranges.pop(name, None)
        buffer.messages, buffer.holes, buffer.bytes, buffer.unfinished = [], [], 0, set()

    def _give_up(self) -> None:
        """Fails all work units that wait, because nothing has come for too long; all others too if nobody answers."""
        self._idle_s = 0
        waiting = "; ".join(f"{topic} [{partition}]" for topic, partition in list(self._ranges)[:5])
        what = "Kafka has sent nothing for too long"
        todo = "see to the brokers of these partitions, then run again; or raise source.idle_timeout_s"
        if self._notes.tells_of_large_message:
            what = "Kafka has a message that is larger than the client settings allow"
            todo = "raise receive.message.max.bytes in source.client, to more than the topic's max.message.bytes"
        error = TransientError(
            what,
            brokers=self._connection.brokers,
            expected=f"progress within {self._idle_timeout_s:g} s in {len(self._ranges)} partitions: {waiting}",
            found=self._notes.last or "silence",
            todo=todo,
        )
        for found in list(self._ranges.values()):
            self._drop(found.buffer, error)
        try:
            self._connection.metadata(self._consumer, self._notes, TransientError)
        except TransientError as lost:
            self._lost = lost


class KafkaExtraction(Extraction):
    """One work unit, in batches of up to 10,000 records or about 16 MiB."""

    def __init__(self, extractor: KafkaExtractor, buffer: _Buffer) -> None:
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


def _ranges_of(unit: WorkUnit) -> list[tuple[PartitionName, int, int]]:
    """The work unit's partitions that have something to read, with first offset and end."""
    topic, highs = _topic_of(unit), unit.expected_high.positions
    return [
        ((topic, int(partition)), as_offset(low), as_offset(highs[partition]))
        for partition, low in unit.low.positions.items()
        if low != highs[partition]
    ]


def _topic_of(unit: WorkUnit) -> str:
    return unit.dataset_urn.partition("@")[0]  # no topic name has an @


def _name(unit: WorkUnit) -> tuple[str, str]:
    return unit.dataset_urn, unit.work_unit_id
