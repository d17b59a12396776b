"""Records of many partitions, as they arrive mixed, by work unit: each range whole, in order, with its holes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from confluent_kafka import KafkaError, Message

from distcommit.core.errors import DistcommitError, SourceError, TransientError
from distcommit.core.watermark import as_offset
from distcommit.core.work import SkippedRange, WorkUnit
from distcommit.sources.kafka import client as kafka_client
from distcommit.sources.kafka.client import ClientNotes, KafkaConnection
from distcommit.sources.kafka.names import MAX_BYTES, PartitionName, no_such_topic

BATCH_RECORDS = 10_000
BATCH_BYTES = 16 << 20


@dataclass(slots=True, eq=False)
class Buffer:
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

    @classmethod
    def of(cls, unit: WorkUnit) -> Buffer:
        limit_bytes = min(BATCH_BYTES, int(unit.properties.get(MAX_BYTES, 0)) or BATCH_BYTES)
        return cls(unit, limit_bytes, is_of_topic=not unit.low.incarnation)

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
class Range:
    """A partition's offsets from `next_offset` to `end`, on their way into a buffer."""

    buffer: Buffer
    next_offset: int
    end: int

    def pass_to(self, partition: int, offset: int) -> None:
        """Notes that there is no record from the next offset up to this one."""
        incarnation = self.buffer.unit.low.incarnation
        self.buffer.holes.append(SkippedRange(str(partition), self.next_offset, offset, "no record", True, incarnation))


class Arrivals:
    """Sorts what comes of the expected ranges into their buffers.

    `beyond`: partitions of which more has come than was expected; whoever stops their fetching takes them out.
    """

    def __init__(self, connection: KafkaConnection, notes: ClientNotes) -> None:
        self._connection, self._notes = connection, notes
        self.ranges: dict[PartitionName, Range] = {}
        self.beyond: set[PartitionName] = set()

    def expect(self, buffers: Iterable[Buffer], topics: Collection[str]) -> None:
        """Expects the ranges of these work units and no others. One whose topic is not among `topics` ends at once: an
        assignment would never say so."""
        self.ranges = {}
        for buffer in buffers:
            for name, low, end in ranges_of(buffer.unit):
                if name[0] not in topics:
                    buffer.error = no_such_topic(name[0])
                    break
                self.ranges[name] = Range(buffer, low, end)
                buffer.unfinished.add(name)

    def sort(self, messages: Sequence[Message]) -> bool:
        """Puts messages into the buffers they belong to; whether any range got further."""
        progress = False
        for name, run in kafka_client.runs_of(messages):
            fitting = self._take_run(name, run)
            progress |= fitting > 0
            for message in run[fitting:]:
                progress |= self._take(name, message)
        return progress

    def drop(self, buffer: Buffer, error: DistcommitError) -> None:
        """Ends a work unit: what still comes of it is ignored."""
        buffer.error = error
        for name in buffer.unfinished:
            self.ranges.pop(name, None)
        buffer.messages, buffer.holes, buffer.bytes, buffer.unfinished = [], [], 0, set()

    def _take_run(self, name: PartitionName, run: Sequence[Message]) -> int:
        """Takes the first messages of a partition if they are those that are next, as nearly all are; how many."""
        found = self.ranges.get(name)
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
        found, error = self.ranges.get(name), message.error()
        if error is not None:
            return self._event(name, found, offset, error)
        if found is None:  # read to its end, or given up
            self.beyond.add(name)
            return False
        if offset < found.next_offset:
            text = f"Kafka went back to offset {offset} of {name[0]} [{name[1]}]"
            self.drop(found.buffer, SourceError(text, expected=f"{found.next_offset} or later"))
        elif offset < found.end:
            if offset > found.next_offset:
                found.pass_to(name[1], offset)
            found.next_offset = offset + 1
            found.buffer.messages.append(message)
            found.buffer.bytes += len(message)
        if offset >= found.end - 1:
            self._finish(name, found)
        return True

    def _event(self, name: PartitionName, found: Range | None, offset: int, error: KafkaError) -> bool:
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
        self.drop(found.buffer, failure)
        return True

    def _finish(self, name: PartitionName, found: Range) -> None:
        if found.end > found.next_offset:
            found.pass_to(name[1], found.end)
        self.ranges.pop(name, None)
        found.buffer.unfinished.discard(name)


def ranges_of(unit: WorkUnit) -> list[tuple[PartitionName, int, int]]:
    """The work unit's partitions that have something to read, with first offset and end."""
    topic, highs = topic_of(unit), unit.expected_high.positions
    return [
        ((topic, int(partition)), as_offset(low), as_offset(highs[partition]))
        for partition, low in unit.low.positions.items()
        if low != highs[partition]
    ]


def topic_of(unit: WorkUnit) -> str:
    return unit.dataset_urn.partition("@")[0]  # no topic name has an @
