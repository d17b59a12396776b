"""What the Kafka source speaks of, and which settings are its own: without a client, so that a job file can be read
where none is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from distcommit.core.errors import SourceError

READER = {
    "group.id": "distcommit",  # librdkafka wants one; nothing is ever committed or subscribed
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",  # the only sign of a range whose last offsets hold no record
}
"""What exactly-once reading needs of a consumer."""
OWNED_KEYS = frozenset({*READER, "bootstrap.servers", "metadata.broker.list", "group.instance.id"})
"""Client settings that exactly-once reading depends on: nobody else sets them."""


MAX_BYTES = "max_bytes"
"""Property of a work unit: its batches are cut so that the caller can stop close to this many bytes."""
PartitionName = tuple[str, int]
Start = Literal["earliest", "latest"] | datetime


@dataclass(frozen=True, slots=True)
class KafkaDataset:
    """A dataset and the partitions it consists of. `of_topic`: all datasets of the topic, if it has several."""

    urn: str
    topic: str
    partitions: tuple[int, ...]
    of_topic: tuple[str, ...] = ()

    def names(self) -> list[PartitionName]:
        """The partitions' names in the cluster."""
        return [(self.topic, partition) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic in the brokers' metadata. `leaderless`: partitions that can't be read now."""

    topic: str
    partitions: tuple[int, ...]
    error: str
    leaderless: frozenset[int]

    def datasets(self, kind: Literal["topic", "partition"]) -> list[KafkaDataset]:
        """The topic as one dataset, or as one for each partition."""
        if kind == "topic":
            return [KafkaDataset(self.topic, self.topic, self.partitions)]
        urns = tuple(f"{self.topic}@{partition}" for partition in self.partitions)
        return [KafkaDataset(urn, self.topic, (p,), urns) for urn, p in zip(urns, self.partitions, strict=True)]


def topic_named_by(urn: str) -> str:
    """The topic of a dataset, whether it is one of a topic or of a partition: no topic's name has an `@`."""
    topic, separator, _ = urn.rpartition("@")
    return topic if separator else urn


class TopicSelection:
    """Which topic names are wanted: listed, or matched whole by a pattern, and not excluded by either."""

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

    def passes_over(self, topic: str) -> bool:
        """Whether a pattern matches the name, and it is left out only because such names are Kafka's own."""
        if not topic.startswith("__") or topic in self._topics or topic in self._exclude:
            return False
        matched = any(pattern.fullmatch(topic) for pattern in self._patterns)
        return matched and not any(pattern.fullmatch(topic) for pattern in self._exclude_patterns)


class PartitionLog(NamedTuple):
    """What a partition holds, [low, high), and where reading begins if nothing of it was ever read.

    `low` is `high` also of one that was read to its end: of that it was not asked. `open_end`: of one of which more was
    read than that, where it ends with what stands behind an open transaction; 0 if that was not asked.
    """

    low: int
    high: int
    begin: int
    open_end: int = 0

    @property
    def end(self) -> int:
        """Where it ends, whether what stands before that can be read by now or not."""
        return max(self.high, self.open_end)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The id of a topic that could not be asked for, and why."""

    error: str


def no_such_topic(topic: str) -> SourceError:
    """The error for a topic that was named and is not there."""
    return SourceError(
        "the topic does not exist",
        topic=topic,
        expected="a topic that the brokers show to this user",
        found="nothing of that name in their metadata",
        todo="create the topic, grant DESCRIBE on it, or take it out of source.topics",
    )
