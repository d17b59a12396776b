"""Topics, datasets and client settings; must not import a Kafka client, so that job files can be read without one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from distcommit.core.errors import SourceError

READER = {
    "group.id": "distcommit",  # required by librdkafka; nothing is committed or subscribed
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",  # the only signal for a range whose last offsets have no records
}
"""Client settings that exactly-once reading requires."""
OWNED_KEYS = frozenset({*READER, "bootstrap.servers", "metadata.broker.list", "group.instance.id"})
"""Client settings that a job file must not set."""


MAX_BYTES = "max_bytes"
"""Work unit property: number of bytes after which reading may stop. Batches have about this size at most."""
PartitionName = tuple[str, int]
Start = Literal["earliest", "latest"] | datetime


@dataclass(frozen=True, slots=True)
class KafkaDataset:
    """A dataset and its partitions.

    Attributes:
        urn: the dataset's URN.
        topic: the topic's name.
        partitions: numbers of the dataset's partitions.
        of_topic: URNs of all datasets of the topic if each partition is a dataset; otherwise empty.
    """

    urn: str
    topic: str
    partitions: tuple[int, ...]
    of_topic: tuple[str, ...] = ()

    def names(self) -> list[PartitionName]:
        return [(self.topic, partition) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic in the brokers' metadata.

    Attributes:
        topic: the topic's name.
        partitions: numbers of its partitions.
        error: the brokers' error for the topic; empty if there is none.
        leaderless: numbers of partitions that cannot be read now, because they have no leader.
    """

    topic: str
    partitions: tuple[int, ...]
    error: str
    leaderless: frozenset[int]

    def datasets(self, kind: Literal["topic", "partition"]) -> list[KafkaDataset]:
        if kind == "topic":
            return [KafkaDataset(self.topic, self.topic, self.partitions)]
        urns = tuple(f"{self.topic}@{partition}" for partition in self.partitions)
        return [KafkaDataset(urn, self.topic, (p,), urns) for urn, p in zip(urns, self.partitions, strict=True)]


def topic_of_dataset(urn: str) -> str:
    """Return a dataset's topic, whose name cannot contain `@`."""
    topic, separator, _ = urn.rpartition("@")
    return topic if separator else urn


class TopicSelection:
    """Topics that are listed or match a pattern with their whole name, without excluded ones."""

    def __init__(
        self, topics: Iterable[str], patterns: Iterable[str], exclude: Iterable[str], exclude_patterns: Iterable[str]
    ) -> None:
        self._topics, self._exclude = frozenset(topics), frozenset(exclude)
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._exclude_patterns = [re.compile(pattern) for pattern in exclude_patterns]

    def __contains__(self, topic: str) -> bool:
        by_pattern = not topic.startswith("__") and any(pattern.fullmatch(topic) for pattern in self._patterns)
        if topic in self._exclude or not (by_pattern or topic in self._topics):
            return False
        return not any(pattern.fullmatch(topic) for pattern in self._exclude_patterns)

    def skips_internal(self, topic: str) -> bool:
        """Return whether a pattern matches, but the name begins with `__`."""
        if not topic.startswith("__") or topic in self._topics or topic in self._exclude:
            return False
        matched = any(pattern.fullmatch(topic) for pattern in self._patterns)
        return matched and not any(pattern.fullmatch(topic) for pattern in self._exclude_patterns)


class PartitionOffsets(NamedTuple):
    """Offsets of a partition, as the brokers report them.

    Attributes:
        low: the first offset. If the partition was read to its end, the low offset is not requested and equals `high`.
        high: the offset after the last record to read, at least `low`.
        at_start_time: the offset of the first record that is not older than a start time; -1 if there is none, or if it
            was not requested.
        open_end: as in `PartitionLog`.
    """

    low: int
    high: int
    at_start_time: int = -1
    open_end: int = 0


class PartitionLog(NamedTuple):
    """A partition's offsets for planning.

    Attributes:
        low: as in `PartitionOffsets`.
        high: the offset after the last record to read.
        begin: the offset where a first read begins.
        open_end: the partition's end, open transactions included; 0 if it was not requested, because the stored
            position is not after `high`.
    """

    low: int
    high: int
    begin: int
    open_end: int = 0

    @property
    def end(self) -> int:
        """The partition's end, open transactions included if it was requested."""
        return max(self.high, self.open_end)


@dataclass(frozen=True, slots=True)
class UnknownTopicId:
    """A topic id that could not be requested.

    Attributes:
        error: the brokers' error, for messages.
    """

    error: str


def no_such_topic(topic: str) -> SourceError:
    return SourceError(
        "the topic does not exist",
        id="SOURCE_TOPIC_MISSING",
        topic=topic,
        expected="a topic that this user may see",
        found="no such topic in the brokers' metadata",
        todo="create the topic, grant DESCRIBE on it, or remove it from source.topics",
    )
