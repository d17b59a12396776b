"""Talking to Kafka: client settings and what may be shown of them, topics, offsets, and messages as Arrow."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Thread
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata

from distcommit.core.errors import ConfigurationError, SourceError, TransientError
from distcommit.core.redaction import is_public
from distcommit.core.watermark import Position
from distcommit.sources.kafka.batches import BATCH_SCHEMA, HEADERS, NO_TIMESTAMP_MS, TIMESTAMP
from distcommit.sources.kafka.names import READER, PartitionLog, PartitionName, Start, TopicFound

logger = logging.getLogger(__name__)

_READER_DEFAULTS = {
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "10",  # how long an empty fetch holds up the next small assignment
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": "65536",
}
_SECRET_KEY = re.compile(r"pass|secret|token|key|user|jaas|oauth|sasl", re.IGNORECASE)
_FIRST_TRY_S = 2.0
CLOSE_TIMEOUT_S = 10.0
"""Seconds that closing a consumer may take; it takes milliseconds."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Where the brokers are and how to talk to them.

    `client` is handed to librdkafka; its values are masked in everything that is shown.
    """

    brokers: str
    client: Mapping[str, str] = field(repr=False)
    request_timeout_s: float

    def masked(self, text: str) -> str:
        """`text` without the values of `client` (of those with harmless keys, only from 4 characters on), except the
        names of protocols and mechanisms where they belong: they help to understand an error."""
        given = {key: value for key, value in self.client.items() if value and not is_public(key, value)}
        secrets = [value for key, value in given.items() if len(value) > 3 or _SECRET_KEY.search(key)]
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def isolation(self) -> IsolationLevel:
        """Whether records of open and aborted transactions count."""
        uncommitted = self.client.get("isolation.level") == "read_uncommitted"
        return IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

    def admin(self, notes: ClientNotes) -> AdminClient:
        """A client for metadata and offsets. Raises ConfigurationError if librdkafka refuses the settings."""
        callbacks: dict[str, Any] = {"error_cb": notes.error, "logger": notes}
        with self._accepted():
            return AdminClient({**self.client, "bootstrap.servers": self.brokers, **callbacks})

    def consumer(self, notes: ClientNotes, group: str = READER["group.id"]) -> Consumer:
        """A consumer that reads what it is assigned and never moves by itself. Raises as `admin`."""
        conf = {**_READER_DEFAULTS, **self.client, **READER, "bootstrap.servers": self.brokers, "group.id": group}
        with self._accepted():
            return Consumer({**conf, "error_cb": notes.error, "logger": notes})

    def metadata(
        self, client: AdminClient | Consumer, notes: ClientNotes, kind: type[SourceError | TransientError]
    ) -> ClusterMetadata:
        """The cluster, with all topics that it shows us.

        An error of this kind says that nobody answered in time, or that client and brokers refuse each other, for which
        nobody waits long: librdkafka itself would try that again and again. It tells so between requests only, so short
        ones come first. Between them the client may lose a message: none may be wanted.
        """
        text, timeout_s = "", 0.0
        while timeout_s < self.request_timeout_s:
            timeout_s = min(5 * timeout_s or _FIRST_TRY_S, self.request_timeout_s)
            try:
                return client.list_topics(timeout=timeout_s)
            except KafkaException as error:
                client.poll(0)  # lets the error callback tell why
                text = self.masked(error_text(error))
            if notes.refused:
                raise kind(
                    "the Kafka brokers refuse this client, or it refuses them",
                    brokers=self.brokers,
                    expected="credentials that the brokers know, and brokers whose certificates can be verified",
                    found=notes.last,
                    todo="check the security settings in source.client (sasl.mechanism, sasl.username, sasl.password;"
                    " ssl.ca.location, a file on the driver's machine and on each executor's), then run again",
                )
        raise kind(
            "the Kafka brokers can't be reached",
            brokers=self.brokers,
            expected=f"an answer within {self.request_timeout_s:g} s",
            found=f"{text}; {notes.last}" if notes.last else text,
            todo="check source.brokers, the network and the security settings in source.client, then run again",
        )

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        try:
            yield
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(
                "librdkafka refuses the client settings",
                found=self.masked(error_text(error)),
                todo="correct source.client; its keys are those of librdkafka's CONFIGURATION.md",
            ) from None


class ClientNotes:
    """What a librdkafka client says on its own account: its log lines go to `logging`, its last error is kept."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self.last = ""
        self._none_left = self._one_refuses = False

    def error(self, error: KafkaError) -> None:
        """librdkafka's error_cb. An error that says why is worth more than the one that sums up."""
        if self.tells_of_large_message:
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # told once, before or after the reasons
            self._none_left = True
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last:
            self.last = self._connection.masked(error.str())
        unknown_certificate = error.code() == KafkaError._SSL and "certificate" in error.str()
        self._one_refuses |= unknown_certificate or error.code() == KafkaError._AUTHENTICATION
        logger.debug("kafka client: %s", self.last)

    @property
    def refused(self) -> bool:
        """Whether no broker was left, and one did not know this client's credentials, or the client its certificate."""
        return self._none_left and self._one_refuses

    @property
    def tells_of_large_message(self) -> bool:
        """Whether a response was larger than the client settings allow, which no further try can change."""
        return "receive.message.max.bytes" in self.last

    def log(self, level: int, text: str, *values: object) -> None:
        """librdkafka's log, as its `logger` setting wants it."""
        logger.log(min(level, logging.INFO), "%s", self._connection.masked(text % values if values else text))


class KafkaQueries:
    """Metadata and offset requests, for planning. Raises ConfigurationError if librdkafka refuses the settings.

    Attributes:
        admin: the client that asks.
        knows_topic_ids: whether `topics` has found a controller, which topic ids are asked of (librdkafka's mock of a
            cluster has none).
        cluster_id: the cluster's own id, once `topics` was asked; "" if it has none.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection, self._notes = connection, ClientNotes(connection)
        self.admin = connection.admin(self._notes)
        self.knows_topic_ids, self.cluster_id = False, ""

    def topics(self) -> Iterator[TopicFound]:
        """All topics that the brokers show us, from one request. Raises SourceError if no broker answers in time."""
        cluster = self._connection.metadata(self.admin, self._notes, SourceError)
        self.knows_topic_ids = cluster.controller_id in cluster.brokers
        self.cluster_id = cluster.cluster_id or ""
        for topic, found in cluster.topics.items():
            leaderless = frozenset(partition.id for partition in found.partitions.values() if partition.leader < 0)
            error = self._connection.masked(found.error.str()) if found.error is not None else ""
            yield TopicFound(topic, tuple(sorted(found.partitions)), error, leaderless)

    def logs(
        self,
        names: Collection[PartitionName],
        start: Start,
        unseen: Collection[PartitionName],
        read_to: Mapping[PartitionName, Position] = MappingProxyType({}),
    ) -> dict[PartitionName, PartitionLog | str]:
        """What partitions hold; a text is the error of that partition. `start` counts for those in `unseen`. Of those
        that end at the position in `read_to` only that is asked, since it is all that they say: nothing is new there.
        Of those that end before it, whether an open transaction is all that is in the way.

        Raises:
            SourceError: if no broker answers.
        """
        highs = self._answers(self._offsets(names, OffsetSpec.latest()))  # type: ignore[no-untyped-call]
        at_end = {name: high for name, high in highs.items() if read_to.get(name) == high}
        asked = [self._offsets([name for name in names if name not in at_end], OffsetSpec.earliest())]  # type: ignore[no-untyped-call]
        if not isinstance(start, str):
            asked.append(self._offsets(unseen, OffsetSpec.for_timestamp(int(start.timestamp() * 1000))))
        lows, begins = (self._answers(futures) for futures in (*asked, *([{}] if len(asked) < 2 else [])))
        lows |= at_end
        found: dict[PartitionName, PartitionLog | str] = {}
        for name, low in lows.items():
            high, begin = highs[name], begins.get(name, 0 if start == "earliest" else -1)
            error = next((answer for answer in (low, high, begin) if isinstance(answer, str)), None)
            if isinstance(low, int) and isinstance(high, int) and isinstance(begin, int):
                high = max(low, high)
                found[name] = PartitionLog(low, high, high if begin < 0 else min(max(low, begin), high))
            else:
                found[name] = error or ""
        if found and all(isinstance(log, str) for log in found.values()):
            self._connection.metadata(self.admin, self._notes, SourceError)  # is anybody there?
        return found | self._with_open_ends(found, read_to)

    def _with_open_ends(
        self, found: Mapping[PartitionName, PartitionLog | str], read_to: Mapping[PartitionName, Position]
    ) -> dict[PartitionName, PartitionLog | str]:
        """The partitions of which more was read than can be read now, with their ends beyond open transactions."""
        behind: dict[PartitionName, PartitionLog] = {}
        for name, position in read_to.items():
            log = found.get(name)
            if isinstance(log, PartitionLog) and isinstance(position, int) and position > log.high:
                behind[name] = log
        answers = self._answers(self._offsets(behind, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED))  # type: ignore[no-untyped-call]
        return {
            name: end if isinstance(end := answers[name], str) else log._replace(open_end=end)
            for name, log in behind.items()
        }

    def _offsets(
        self, names: Collection[PartitionName], spec: OffsetSpec, isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, Future[Any]]:
        if not names:
            return {}
        timeout_s = self._connection.request_timeout_s
        isolation = self._connection.isolation if isolation is None else isolation
        wanted = {TopicPartition(*name): spec for name in names}
        return self.admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout_s)

    def _answers(self, futures: Mapping[TopicPartition, Future[Any]]) -> dict[PartitionName, int | str]:
        return {(asked.topic, asked.partition): self._answer(future) for asked, future in futures.items()}

    def _answer(self, future: Future[Any]) -> int | str:
        try:
            return int(future.result().offset)
        except KafkaException as error:
            return self._connection.masked(error_text(error))


def close_consumer(consumer: Consumer, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Closes a consumer, any number of times. One that does not close in time is left behind, and told.

    librdkafka (2.16 at least) may wait for ever for a broker's thread that does not end: once in some hundred
    times after a response that was too large, and where brokers can't be reached (its issue 4519).
    """

    def close() -> None:
        with suppress(RuntimeError):  # older clients mind being closed twice
            consumer.close()

    closing = Thread(target=close, name="closing a Kafka consumer", daemon=True)  # nobody waits for it at exit
    closing.start()
    closing.join(timeout_s)
    if closing.is_alive():
        logger.warning("a Kafka consumer was not closed within %g s and is left behind", timeout_s)


def error_text(error: BaseException) -> str:
    """The text of a librdkafka error, short."""
    inner = error.args[0] if error.args else error
    return f"{inner.str()} ({inner.name()})" if isinstance(inner, KafkaError) else str(error)


def runs_of(messages: Sequence[Message]) -> Iterator[tuple[PartitionName, Sequence[Message]]]:
    """Messages of one partition that come in a row, with its name."""
    names = list(zip(map(Message.topic, messages), map(Message.partition, messages), strict=True))
    changes = [place for place, changed in enumerate(map(operator.ne, names, names[1:]), 1) if changed]
    for begin, end in pairwise([0, *changes, len(messages)]):
        topic, partition = names[begin]
        yield (topic or "", -1 if partition is None else partition), messages[begin:end]


_TIMESTAMP_TYPES = (None, "create", "append")
_TIMESTAMP_SCALARS = tuple(pa.scalar(kind, pa.string()) for kind in _TIMESTAMP_TYPES)


def to_batch(messages: Sequence[Message]) -> tuple[pa.RecordBatch, dict[str, Position], int]:
    """Messages, of which there is one at least, as Arrow; the position after them in each partition, and the bytes of
    their keys and values."""
    keys = pa.array(list(map(Message.key, messages)), pa.binary())
    values = pa.array(list(map(Message.value, messages)), pa.binary())
    headers = list(map(Message.headers, messages))
    partitions, offsets = list(map(Message.partition, messages)), list(map(Message.offset, messages))
    columns = [
        keys,
        values,
        pa.array(headers, HEADERS) if any(headers) else pa.nulls(len(messages), HEADERS),
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        *timestamps(list(map(Message.timestamp, messages))),
    ]
    size = keys.total_values_length + values.total_values_length
    last = dict(zip(partitions, offsets, strict=True))  # offsets of a partition ascend
    reached: dict[str, Position] = {str(partition): (offset or 0) + 1 for partition, offset in last.items()}
    return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA), reached, size


def timestamps(found: Sequence[tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Return when records were written and by whose clock, from the client's types and times; null without a time."""
    kinds, times = zip(*found, strict=True)
    if NO_TIMESTAMP_MS in times:
        kinds = tuple(0 if time_ms == NO_TIMESTAMP_MS else kind for kind, time_ms in zip(kinds, times, strict=True))
    if kinds.count(kinds[0]) == len(kinds) and kinds[0]:
        return pa.array(times, TIMESTAMP), pa.repeat(_TIMESTAMP_SCALARS[kinds[0]], len(kinds))
    known = [time_ms if kind else None for kind, time_ms in zip(kinds, times, strict=True)]
    return pa.array(known, TIMESTAMP), pa.array([_TIMESTAMP_TYPES[kind] for kind in kinds], pa.string())
