"""Sorter of Kafka messages into work units' buffers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from confluent_kafka import KafkaError, Message

from distcommit.core.errors import DistcommitError, SourceError, TransientError
from distcommit.core.watermark import as_offset
from distcommit.core.work_units import SkippedRange, WorkUnit
from distcommit.sources.kafka import client as kafka_client
from distcommit.sources.kafka.client import ClientLog, KafkaConnection, byte_count
from distcommit.sources.kafka.topics import MAX_BYTES, PartitionName, no_such_topic

BATCH_RECORDS = 10_000
BATCH_BYTES = 16 << 20


@dataclass(slots=True, eq=False)
class Buffer:
    """The messages of one work unit that arrived and were not yielded yet.

    Attributes:
        unit: the work unit.
        limit_bytes: bytes of messages after which a batch is yielded.
        is_of_topic: whether, after the last message, the topic still had the planned id. True if the cluster has no
            topic ids.
        messages: the messages, in the order of arrival.
        holes: offset ranges without records.
        bytes: bytes of the messages' keys, values and headers.
        unfinished: partitions with offsets that have not arrived.
        error: why the work unit failed; None if it did not.
    """

    unit: WorkUnit
    limit_bytes: int
    is_of_topic: bool
    messages: list[Message] = field(default_factory=list)
    holes: list[SkippedRange] = field(default_factory=list)
    bytes: int = 0
    unfinished: set[PartitionName] = field(default_factory=set)
    error: DistcommitError | None = None

    @classmethod
    def of(cls, unit: WorkUnit) -> Buffer:
        limit_bytes = min(BATCH_BYTES, int(unit.properties.get(MAX_BYTES, 0)) or BATCH_BYTES)
        return cls(unit, limit_bytes, is_of_topic=not unit.low.incarnation)

    def ready(self) -> bool:
        enough = len(self.messages) >= BATCH_RECORDS or self.bytes >= self.limit_bytes
        return enough or not self.unfinished or self.error is not None

    def pop_batch(self) -> list[Message]:
        """Remove and return the next batch, at least one message if there is any."""
        selected = self.messages[:BATCH_RECORDS]
        if self.bytes > self.limit_bytes:
            sums = enumerate(accumulate(byte_count([message]) for message in selected), 1)
            selected = selected[: next((count for count, size in sums if size >= self.limit_bytes), len(selected))]
        del self.messages[: len(selected)]
        self.bytes -= byte_count(selected) if self.messages else self.bytes
        return selected


@dataclass(slots=True, eq=False)
class Range:
    """The offsets of a partition that have not arrived.

    Attributes:
        buffer: buffer of the work unit that the offsets belong to.
        next_offset: first offset that has not arrived.
        end: end of the offsets to read, exclusive.
    """

    buffer: Buffer
    next_offset: int
    end: int

    def add_hole(self, partition: int, offset: int) -> None:
        incarnation = self.buffer.unit.low.incarnation
        self.buffer.holes.append(SkippedRange(str(partition), self.next_offset, offset, "no record", True, incarnation))


class Arrivals:
    """Sorter of messages into the buffers of their work units.

    Attributes:
        ranges: the expected ranges, by partition.
        beyond: partitions with messages past their range. The caller stops fetching them, and clears the set.
    """

    def __init__(self, connection: KafkaConnection, notes: ClientLog) -> None:
        self._connection, self._notes = connection, notes
        self.ranges: dict[PartitionName, Range] = {}
        self.beyond: set[PartitionName] = set()

    def expect(self, buffers: Iterable[Buffer], topics: Collection[str]) -> None:
        """Expect only these work units' ranges.

        A topic that is not in `topics` fails at once, because librdkafka does not report an assigned missing topic.
        """
        self.ranges = {}
        for buffer in buffers:
            for name, low, end in ranges_of(buffer.unit):
                if name[0] not in topics:
                    buffer.error = no_such_topic(name[0])
                    break
                self.ranges[name] = Range(buffer, low, end)
                buffer.unfinished.add(name)

    def sort(self, messages: Sequence[Message]) -> bool:
        """Sort messages into buffers; return whether any range became shorter."""
        progress = False
        for name, run in kafka_client.runs_of(messages):
            count = self._add_run(name, run)
            progress |= count > 0
            for message in run[count:]:
                progress |= self._add_message(name, message)
        return progress

    def drop(self, buffer: Buffer, error: DistcommitError) -> None:
        """Fail a work unit, whose later messages are ignored."""
        buffer.error = error
        for name in buffer.unfinished:
            self.ranges.pop(name, None)
        buffer.messages, buffer.holes, buffer.bytes, buffer.unfinished = [], [], 0, set()

    def _add_run(self, name: PartitionName, run: Sequence[Message]) -> int:
        """Add messages within the range of one partition, and return their number. If one is an event or skips an
        offset, add none."""
        expected = self.ranges.get(name)
        if expected is None or any(map(Message.error, run)):
            return 0
        low, messages = expected.next_offset, run[: expected.end - expected.next_offset]
        if list(map(Message.offset, messages)) != list(range(low, low + len(messages))):
            return 0
        expected.next_offset += len(messages)
        expected.buffer.messages += messages
        expected.buffer.bytes += byte_count(messages)
        if expected.next_offset >= expected.end:
            self._finish(name, expected)
        return len(messages)

    def _add_message(self, name: PartitionName, message: Message) -> bool:
        offset = -1 if (existing := message.offset()) is None else existing
        expected, error = self.ranges.get(name), message.error()
        if error is not None:
            return self._event(name, expected, offset, error)
        if expected is None:  # read to its end, or dropped
            self.beyond.add(name)
            return False
        if offset < expected.next_offset:
            text = f"Kafka went back to offset {offset} of {name[0]} [{name[1]}]"
            self.drop(expected.buffer, SourceError(text, expected=f"{expected.next_offset} or later"))
        elif offset < expected.end:
            if offset > expected.next_offset:
                expected.add_hole(name[1], offset)
            expected.next_offset = offset + 1
            expected.buffer.messages.append(message)
            expected.buffer.bytes += byte_count([message])
        if offset >= expected.end - 1:
            self._finish(name, expected)
        return True

    def _event(self, name: PartitionName, expected: Range | None, offset: int, error: KafkaError) -> bool:
        if expected is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            if offset >= expected.end:
                self._finish(name, expected)
                return True
            self._notes.last = f"{name[0]} [{name[1]}] ends at offset {offset}, before {expected.end}"
            return False
        has_expired = error.code() == KafkaError._AUTO_OFFSET_RESET
        failure = (TransientError if error.retriable() else SourceError)(
            "Kafka no longer has the planned offsets" if has_expired else "Kafka can't deliver a partition",
            dataset=expected.buffer.unit.dataset_urn,
            partition=name[1],
            expected=f"offsets {expected.next_offset} to {expected.end}",
            found=self._connection.masked(f"{error.str()} ({error.name()})"),
            todo="run again: the next plan applies source.expired_offsets"
            if has_expired
            else "correct the cause, then run again",
        )
        self.drop(expected.buffer, failure)
        return True

    def _finish(self, name: PartitionName, finished: Range) -> None:
        if finished.end > finished.next_offset:
            finished.add_hole(name[1], finished.end)
        self.ranges.pop(name, None)
        finished.buffer.unfinished.discard(name)


def ranges_of(unit: WorkUnit) -> list[tuple[PartitionName, int, int]]:
    """Return a work unit's non-empty partitions, each with first offset and end (exclusive)."""
    topic, highs = topic_of(unit), unit.expected_high.positions
    return [
        ((topic, int(partition)), as_offset(low), as_offset(highs[partition]))
        for partition, low in unit.low.positions.items()
        if low != highs[partition]
    ]


def topic_of(unit: WorkUnit) -> str:
    return unit.dataset_urn.partition("@")[0]  # no topic name has an @
