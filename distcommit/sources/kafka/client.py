"""Kafka client: settings, masking of secrets, metadata, offsets, and conversion to Arrow."""

from __future__ import annotations

import logging
import operator
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
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
from distcommit.sources.kafka.batch_schema import BATCH_SCHEMA, HEADERS, NO_TIMESTAMP_MS, TIMESTAMP
from distcommit.sources.kafka.topics import READER, PartitionName, PartitionOffsets, TopicMetadata

logger = logging.getLogger(__name__)

_READER_DEFAULTS = {
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "10",  # how long an empty fetch holds up the next small assignment
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": "65536",
}
_SECRET_KEY = re.compile(r"pass|secret|token|key|user|jaas|oauth|sasl", re.IGNORECASE)
_FIRST_TRY_S = 2.0
_CONNECT_TIMEOUT_S = 1.0
CLOSE_TIMEOUT_S = 10.0
"""Time limit for closing a consumer, which normally takes milliseconds."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Settings to connect to the brokers.

    Attributes:
        brokers: `host:port` of some brokers, separated by commas.
        client: further librdkafka settings. `masked` removes their values from output.
        request_timeout_s: time limit in seconds of a metadata or offset request.
    """

    brokers: str
    client: Mapping[str, str] = field(repr=False)
    request_timeout_s: float

    def masked(self, text: str) -> str:
        """Mask the values of `client`, except public ones. Values of fewer than 4 characters are masked only if their
        setting's name is secret."""
        supplied = {key: value for key, value in self.client.items() if value and not is_public(key, value)}
        secrets = [value for key, value in supplied.items() if len(value) > 3 or _SECRET_KEY.search(key)]
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def isolation(self) -> IsolationLevel:
        """Isolation level: whether records of open and aborted transactions are read."""
        uncommitted = self.client.get("isolation.level") == "read_uncommitted"
        return IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

    def admin(self, notes: ClientLog) -> AdminClient:
        """Return an admin client. Raises ConfigurationError if librdkafka rejects the settings."""
        callbacks: dict[str, Any] = {"error_cb": notes.error, "logger": notes}
        with self._accepted():
            return AdminClient({**self.client, "bootstrap.servers": self.brokers, **callbacks})

    def consumer(self, notes: ClientLog, group: str = READER["group.id"]) -> Consumer:
        """Return a consumer for assigned partitions; raises ConfigurationError if librdkafka rejects the settings."""
        conf = {**_READER_DEFAULTS, **self.client, **READER, "bootstrap.servers": self.brokers, "group.id": group}
        with self._accepted():
            return Consumer({**conf, "error_cb": notes.error, "logger": notes})

    def metadata(
        self, client: AdminClient | Consumer, notes: ClientLog, kind: type[SourceError | TransientError]
    ) -> ClusterMetadata:
        """Return metadata with all visible topics.

        librdkafka retries a rejection forever, and reports it only between requests, so the first requests are short. A
        failed request discards arrived messages, so no assigned partition may be in use.

        Raises:
            SourceError, TransientError: `kind`, if no broker responds in time, or the brokers reject the client.
        """
        text, timeout_s = "", 0.0
        while timeout_s < self.request_timeout_s:
            timeout_s = min(5 * timeout_s or _FIRST_TRY_S, self.request_timeout_s)
            try:
                return client.list_topics(timeout=timeout_s)
            except KafkaException as error:
                client.poll(0)  # calls the error callback with the reason
                text = self.masked(error_text(error))
            if notes.refused:
                raise kind(
                    "the Kafka brokers reject this client, or it rejects their certificates",
                    brokers=self.brokers,
                    expected="credentials that the brokers accept, and broker certificates that can be verified",
                    found=notes.last,
                    todo="correct the security settings in source.client (sasl.mechanism, sasl.username, sasl.password;"
                    " ssl.ca.location, a file on the driver and each executor), then run again",
                )
        actual = f"{text}; {notes.last}" if notes.last else text
        todo = "check source.brokers, the network and the security settings in source.client, then run again"
        if open_port := self._open_port():
            actual += f"; {open_port} accepts connections, but does not respond as a Kafka broker"
            todo = (
                "check that source.brokers has the port of a Kafka listener, that security.protocol in source.client is"
                " that of the listener, and that the broker works; then run again"
            )
        raise kind(
            "the Kafka brokers can't be reached",
            brokers=self.brokers,
            expected=f"a response within {self.request_timeout_s:g} s",
            found=actual,
            todo=todo,
        )

    def _open_port(self) -> str:
        for address in self.brokers.split(","):
            host, _, port = address.strip().rpartition("://")[2].rpartition(":")
            with suppress(OSError, ValueError, OverflowError):
                socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
                return address.strip()
        return ""

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        try:
            yield
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(
                "librdkafka rejects the client settings",
                id="KAFKA_SETTINGS_INVALID",
                found=self.masked(error_text(error)),
                todo="correct source.client; librdkafka's CONFIGURATION.md lists the keys",
            ) from None


class ClientLog:
    """Receiver of a client's log lines and errors, which stores the last error."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self.last = ""
        self._none_left = self._one_refuses = False

    def error(self, error: KafkaError) -> None:
        """Store an error (librdkafka's `error_cb`). "All brokers are down" does not replace a more specific error, and
        no error replaces that of an oversized message."""
        if self.has_oversized_message:
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # reported once, before or after the specific errors
            self._none_left = True
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last:
            self.last = self._connection.masked(error.str())
        unknown_certificate = error.code() == KafkaError._SSL and "certificate" in error.str()
        self._one_refuses |= unknown_certificate or error.code() == KafkaError._AUTHENTICATION
        logger.debug("kafka client: %s", self.last)

    @property
    def refused(self) -> bool:
        """Whether all brokers are down, and one rejected credentials or certificate."""
        return self._none_left and self._one_refuses

    @property
    def has_oversized_message(self) -> bool:
        """Whether a response exceeded the client's size limit. A retry would fail, too."""
        return "receive.message.max.bytes" in self.last

    def log(self, level: int, text: str, *values: object) -> None:
        logger.log(min(level, logging.INFO), "%s", self._connection.masked(text % values if values else text))


class KafkaQueries:
    """Requests for planning; raises ConfigurationError if librdkafka rejects the settings.

    Attributes:
        admin: the client.
        knows_topic_ids: whether the cluster has a controller, unlike librdkafka's mock cluster. Set by `topics`.
        cluster_id: the cluster's id, set by `topics`; empty if there is none.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection, self._notes = connection, ClientLog(connection)
        self.admin = connection.admin(self._notes)
        self.knows_topic_ids, self.cluster_id = False, ""

    def topics(self) -> Iterator[TopicMetadata]:
        """Yield visible topics; raises SourceError if no broker responds in time or the brokers reject the client."""
        cluster = self._connection.metadata(self.admin, self._notes, SourceError)
        self.knows_topic_ids = cluster.controller_id in cluster.brokers
        self.cluster_id = cluster.cluster_id or ""
        for name, topic in cluster.topics.items():
            leaderless = frozenset(partition.id for partition in topic.partitions.values() if partition.leader < 0)
            error = self._connection.masked(topic.error.str()) if topic.error is not None else ""
            yield TopicMetadata(name, tuple(sorted(topic.partitions)), error, leaderless)

    def logs(
        self,
        names: Collection[PartitionName],
        start_time: datetime | None = None,
        unseen: Collection[PartitionName] = (),
        read_to: Mapping[PartitionName, Position] = MappingProxyType({}),
    ) -> dict[PartitionName, PartitionOffsets | str]:
        """Return the offsets of each partition, or the brokers' error for it as text.

        Args:
            start_time: the time whose offsets are requested for the partitions of `unseen`; None if it is not needed.
            unseen: partitions without a stored position.
            read_to: stored positions. If a partition ends at its position, its low offset is not requested. If it ends
                before its position, its end beyond open transactions is requested, too.

        Raises:
            SourceError: if all partitions have errors and no broker responds.
        """
        highs = self._answers(self._offsets(names, OffsetSpec.latest()))  # type: ignore[no-untyped-call]
        at_end = {name: high for name, high in highs.items() if read_to.get(name) == high}
        requests = [self._offsets([name for name in names if name not in at_end], OffsetSpec.earliest())]  # type: ignore[no-untyped-call]
        if start_time is not None:
            requests.append(self._offsets(unseen, OffsetSpec.for_timestamp(int(start_time.timestamp() * 1000))))
        lows, at_time = (self._answers(futures) for futures in (*requests, *([{}] if len(requests) < 2 else [])))
        lows |= at_end
        logs: dict[PartitionName, PartitionOffsets | str] = {}
        for name, low in lows.items():
            high, at_start = highs[name], at_time.get(name, -1)
            error = next((answer for answer in (low, high, at_start) if isinstance(answer, str)), None)
            if isinstance(low, int) and isinstance(high, int) and isinstance(at_start, int):
                logs[name] = PartitionOffsets(low, max(low, high), at_start)
            else:
                logs[name] = error or ""
        if logs and all(isinstance(log, str) for log in logs.values()):
            self._connection.metadata(self.admin, self._notes, SourceError)  # raises if no broker responds
        return logs | self._with_open_ends(logs, read_to)

    def _with_open_ends(
        self, logs: Mapping[PartitionName, PartitionOffsets | str], read_to: Mapping[PartitionName, Position]
    ) -> dict[PartitionName, PartitionOffsets | str]:
        behind: dict[PartitionName, PartitionOffsets] = {}
        for name, position in read_to.items():
            log = logs.get(name)
            if isinstance(log, PartitionOffsets) and isinstance(position, int) and position > log.high:
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
        requested = {TopicPartition(*name): spec for name in names}
        return self.admin.list_offsets(requested, isolation_level=isolation, request_timeout=timeout_s)

    def _answers(self, futures: Mapping[TopicPartition, Future[Any]]) -> dict[PartitionName, int | str]:
        return {(name.topic, name.partition): self._answer(future) for name, future in futures.items()}

    def _answer(self, future: Future[Any]) -> int | str:
        try:
            return int(future.result().offset)
        except KafkaException as error:
            return self._connection.masked(error_text(error))


def close_consumer(consumer: Consumer, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Close a consumer, unless it is closed. If that takes more than `timeout_s`, log a warning and leave it open.

    librdkafka (2.16 at least) may wait forever for a broker thread (its issue 4519).
    """

    def close() -> None:
        with suppress(RuntimeError):  # older clients can't be closed twice
            consumer.close()

    closing = Thread(target=close, name="closing a Kafka consumer", daemon=True)  # a daemon: exit does not wait for it
    closing.start()
    closing.join(timeout_s)
    if closing.is_alive():
        logger.warning("a Kafka consumer was not closed within %g s and was abandoned", timeout_s)


def error_text(error: BaseException) -> str:
    inner = error.args[0] if error.args else error
    return f"{inner.str()} ({inner.name()})" if isinstance(inner, KafkaError) else str(error)


def runs_of(messages: Sequence[Message]) -> Iterator[tuple[PartitionName, Sequence[Message]]]:
    """Yield runs of consecutive messages of one partition."""
    names = list(zip(map(Message.topic, messages), map(Message.partition, messages), strict=True))
    changes = [index for index, changed in enumerate(map(operator.ne, names, names[1:]), 1) if changed]
    for begin, end in pairwise([0, *changes, len(messages)]):
        topic, partition = names[begin]
        yield (topic or "", -1 if partition is None else partition), messages[begin:end]


def byte_count(messages: Sequence[Message]) -> int:
    """Return the bytes of keys, values and headers."""
    headers: Iterable[Any] = filter(None, map(Message.headers, messages))
    header_bytes = sum(len(name) + len(value or b"") for pairs in headers for name, value in pairs)
    key_bytes = sum(map(len, filter(None, map(Message.key, messages))))
    return sum(map(len, messages)) + key_bytes + header_bytes  # the length of a message is its value's


_TIMESTAMP_TYPES = (None, "create", "append")
_TIMESTAMP_SCALARS = tuple(pa.scalar(kind, pa.string()) for kind in _TIMESTAMP_TYPES)


def to_batch(messages: Sequence[Message]) -> tuple[pa.RecordBatch, dict[str, Position], int]:
    """Convert messages of one topic, at least one.

    Returns:
        The batch, each partition's next offset, and the bytes of keys, values and headers.
    """
    headers = list(map(Message.headers, messages))
    partitions, offsets = list(map(Message.partition, messages)), list(map(Message.offset, messages))
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.array(headers, HEADERS) if any(headers) else pa.nulls(len(messages), HEADERS),
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        *timestamps(list(map(Message.timestamp, messages))),
    ]
    last = dict(zip(partitions, offsets, strict=True))  # offsets of a partition ascend
    reached: dict[str, Position] = {str(partition): (offset or 0) + 1 for partition, offset in last.items()}
    return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA), reached, byte_count(messages)


def timestamps(pairs: Sequence[tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Convert pairs of type and milliseconds to columns of times and types, null if there is no timestamp."""
    kinds, times = zip(*pairs, strict=True)
    if NO_TIMESTAMP_MS in times:
        kinds = tuple(0 if time_ms == NO_TIMESTAMP_MS else kind for kind, time_ms in zip(kinds, times, strict=True))
    if kinds.count(kinds[0]) == len(kinds) and kinds[0]:
        return pa.array(times, TIMESTAMP), pa.repeat(_TIMESTAMP_SCALARS[kinds[0]], len(kinds))
    existing = [time_ms if kind else None for kind, time_ms in zip(kinds, times, strict=True)]
    return pa.array(existing, TIMESTAMP), pa.array([_TIMESTAMP_TYPES[kind] for kind in kinds], pa.string())
