"""Requests to a Kafka cluster: clients, topics, and rows of the ledger topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from distcommit.core.errors import ConfigurationError, CorruptError, TransientError, UnknownVersionError
from distcommit.core.interfaces.ledger import LedgerRow, check_json_version
from distcommit.core.redaction import is_public
from distcommit.core.support.decoding import from_json
from distcommit.sinks.base.retries import tries
from distcommit.sinks.kafka.catchable_producer import CatchableProducer
from distcommit.sinks.kafka.topic_names import NOT_OURS, row_name

logger = logging.getLogger(__name__)

_COMPACTED = "compact"
_LOOKS = 30
_NAMED = 20
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """The cluster, the settings of clients, and the ledger topic.

    Attributes:
        brokers: `host:port` of some brokers, separated by commas.
        client: settings of librdkafka; values are masked in messages.
        ledger: topic of the ledger.
        ids: number of transactional ids and of ledger partitions.
        transaction_timeout_s: seconds after which brokers abort a transaction.
        request_timeout_s: seconds to wait for an answer.
    """

    brokers: str
    client: tuple[tuple[str, str], ...] = field(repr=False)
    ledger: str
    ids: int
    transaction_timeout_s: float
    request_timeout_s: float

    def admin(self) -> AdminClient:
        """Return a client; raises ConfigurationError if librdkafka rejects the settings."""
        return AdminClient(self._conf())

    def producer(self, transactional_id: str) -> CatchableProducer:
        """Return a transactional producer, which the caller must close."""
        timeout_ms = str(int(self.transaction_timeout_s * 1000))
        conf = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        return CatchableProducer({"linger.ms": "5", **self._conf(), **conf, "delivery.report.only.error": True})

    def text(self, error: BaseException) -> str:
        inner = error.args[0] if error.args else error
        text = (
            f"{inner.str()} ({inner.name()})" if isinstance(inner, KafkaError) else f"{type(error).__name__}: {error}"
        )
        return self.masked(text)

    def masked(self, text: str) -> str:
        """Mask values of `client` longer than 3 characters, except public ones."""
        for key, value in sorted(self.client, key=lambda item: -len(item[1])):
            text = text.replace(value, "***") if len(value) > 3 and not is_public(key, value) else text
        return text

    def answers(self, futures: dict[Any, Any]) -> dict[Any, Any]:
        """Return the result or the KafkaException of each request of an admin client. Raises TransientError if an
        answer takes too long; the request may have been executed."""
        results: dict[Any, Any] = {}
        for name, future in futures.items():
            try:
                results[name] = future.result(self.request_timeout_s)
            except KafkaException as error:
                results[name] = error
            except TimeoutError:
                raise TransientError(
                    "the brokers do not answer",
                    id="TARGET_UNAVAILABLE",
                    brokers=self.brokers,
                    expected=f"an answer on {name} within {self.request_timeout_s:g} s",
                    found="none",
                    todo="nothing now: the request is repeated, at the latest by the next run; if the error stays, make"
                    " the brokers reachable, or raise sink.request_timeout_s",
                ) from None
        return results

    def topic_id(self, admin: AdminClient) -> str:
        """Return the ledger topic's id; empty if there is none. Raises KafkaException or TransientError if brokers
        can't describe it, and ConfigurationError if it has not `ids` partitions."""
        futures = admin.describe_topics(TopicCollection([self.ledger]), request_timeout=self.request_timeout_s)
        result = self.answers(futures)[self.ledger]
        if isinstance(result, KafkaException):
            if result.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return ""
            raise result
        if len(result.partitions) != self.ids:
            raise ConfigurationError(
                "the ledger topic is not this job's",
                id="TARGET_SETUP_INVALID",
                topic=self.ledger,
                expected=f"{self.ids} partitions, as many as sink.transactional_ids",
                found=str(len(result.partitions)),
                todo="set sink.ledger to another topic",
            )
        return str(result.topic_id)

    def make_topics(self, admin: AdminClient, topics: Iterable[str]) -> dict[str, str]:
        """Create missing topics; return reasons of failures by topic."""
        created = self.answers(admin.create_topics([NewTopic(topic) for topic in topics]))
        return {
            topic: self.text(error)
            for topic, error in created.items()
            if isinstance(error, KafkaException) and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS
        }

    def unwritable(self, admin: AdminClient, topics: Sequence[str]) -> dict[str, str]:
        """Return topics that this user may not write, with reasons."""
        requested = admin.describe_topics(
            TopicCollection(list(topics)),
            include_authorized_operations=True,
            request_timeout=self.request_timeout_s,
        )
        denied = "TOPIC_AUTHORIZATION_FAILED: this user may not write to it"
        reason: dict[str, str] = {}
        for topic, result in self.answers(requested).items():
            if isinstance(result, KafkaException):
                reason[topic] = self.text(result)
            elif AclOperation.WRITE not in (result.authorized_operations or ()):
                reason[topic] = denied
        return reason

    def rows(self, admin: AdminClient, number: int) -> dict[bytes, LedgerRow]:
        """Return the ledger rows of a transactional id by key, once the transactions that are open now have ended.

        Raises:
            KafkaException: if a request fails, for instance because no broker answers.
            TransientError: if an answer takes too long, or an open transaction of another producer hides later rows.
            UnknownVersionError: if a row is of another version.
            CorruptError: if a row is not valid.
        """
        rows, damaged = self.readable_rows(admin, number)
        for error in damaged.values():
            raise error
        return rows

    def readable_rows(
        self, admin: AdminClient, number: int
    ) -> tuple[dict[bytes, LedgerRow], dict[bytes, CorruptError]]:
        """Return the valid rows, and the errors of invalid rows, by key. Otherwise waits and raises as `rows`."""
        rows, damaged = dict[bytes, LedgerRow](), dict[bytes, CorruptError]()
        log = TopicPartition(self.ledger, number)
        end = self._offset(admin, log, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        if end == self._offset(admin, log, OffsetSpec.earliest()):  # type: ignore[no-untyped-call]
            return rows, damaged
        with closing(self._committed(self.ledger, {number: end})) as messages:
            for message in messages:
                key = message.key() or b""
                rows.pop(key, None)
                try:
                    rows[key] = _row(key, message.value(), self.ledger)
                except CorruptError as error:
                    damaged[key] = error
        return rows, damaged

    def count(self, admin: AdminClient, topic: str) -> int | None:
        """Return the number of committed messages; None if messages may have been deleted. Waits and raises as
        `rows`."""
        requested = admin.describe_topics(TopicCollection([topic]), request_timeout=self.request_timeout_s)
        described = self.answers(requested)[topic]
        if isinstance(described, KafkaException):
            if described.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise described
        config = self._value(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        logs = [TopicPartition(topic, partition.id) for partition in described.partitions]
        first = [self._offset(admin, log, OffsetSpec.earliest()) for log in logs]  # type: ignore[no-untyped-call]
        if any(first) or _COMPACTED in config["cleanup.policy"].value:
            return None
        ends = {
            log.partition: self._offset(admin, log, OffsetSpec.latest())  # type: ignore[no-untyped-call]
            for log in logs
        }
        with closing(self._committed(topic, {partition: end for partition, end in ends.items() if end})) as messages:
            return sum(1 for _ in messages)

    def _committed(self, topic: str, ends: Mapping[int, int]) -> Generator[Message, None, None]:
        """Yield committed messages below these end offsets, and maybe later ones. Raises TransientError without
        progress."""
        conf = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
        wait = {"fetch.wait.max.ms": "10", "fetch.queue.backoff.ms": "10", "auto.offset.reset": "earliest"}
        consumer = Consumer({**wait, **self._conf(), **conf, "group.id": "distcommit"})
        patience_s = self.transaction_timeout_s + self.request_timeout_s
        reached = dict.fromkeys(ends, 0)
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            remaining, deadline_s = dict(ends), time.monotonic() + patience_s
            while remaining:
                if time.monotonic() > deadline_s:
                    raise TransientError(
                        "a topic can't be read to its end",
                        id="TARGET_UNAVAILABLE",
                        topic=topic,
                        expected=", ".join(
                            f"offset {end} of partition {partition}" for partition, end in remaining.items()
                        ),
                        found=", ".join(
                            f"offset {reached[partition]} of partition {partition}" for partition in remaining
                        )
                        + f", and no further message within {patience_s:g} s",
                        todo="check that the brokers respond. If they do, another producer has an open transaction on"
                        " this topic: end that producer, and run again",
                    )
                for message in consumer.consume(1000, timeout=0.2):
                    partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
                    if error is None:
                        yield message
                        deadline_s = time.monotonic() + patience_s
                        offset += 1
                    elif error.code() != KafkaError._PARTITION_EOF:
                        if not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                            raise KafkaException(error)
                        continue
                    reached[partition] = offset
                    if offset >= remaining.get(partition, offset + 1):
                        del remaining[partition]
        finally:
            consumer.close()

    def _value(self, futures: dict[Any, Any]) -> Any:
        (result,) = self.answers(futures).values()
        if isinstance(result, KafkaException):
            raise result
        return result

    def _offset(self, admin: AdminClient, log: TopicPartition, spec: OffsetSpec) -> int:
        timeout_s = self.request_timeout_s
        isolation = IsolationLevel.READ_UNCOMMITTED
        futures = admin.list_offsets({log: spec}, isolation_level=isolation, request_timeout=timeout_s)
        return int(self._value(futures).offset)

    def _conf(self) -> dict[str, Any]:
        return {**dict(self.client), "bootstrap.servers": self.brokers, "logger": _Log(self)}


class _Log:
    def __init__(self, target: KafkaTarget) -> None:
        self._target = target

    def log(self, level: int, text: str, *values: object) -> None:
        logger.log(min(level, logging.INFO), "%s", self._target.masked(text % values if values else text))


_SMALL = {"segment.bytes": str(8 << 20), "min.cleanable.dirty.ratio": "0.1"}
"""Settings of the ledger topic. A committer reads its whole partition, and only closed segments are compacted."""


@lru_cache(16)  # a worker may outlive many runs
def ledger_topic_id(target: KafkaTarget, run_id: str) -> str:
    """Return the ledger topic's id, after creating a missing topic; cached for the last 16 runs. Raises
    ConfigurationError if it has other partitions or deletes rows by age, and TransientError if it can't be described or
    created."""
    try:
        with target.admin() as admin:
            topic_id = target.topic_id(admin) or _created(target, admin)
            result = target._value(admin.describe_configs([ConfigResource(ResourceType.TOPIC, target.ledger)]))
    except KafkaException as error:
        raise TransientError(
            "the ledger topic can't be described or created",
            id="TARGET_UNAVAILABLE",
            topic=target.ledger,
            found=target.text(error),
            todo="nothing now: a later attempt repeats it; if the error stays, make the brokers reachable, and permit"
            " this user to describe and create the topic",
        ) from None
    policy = result["cleanup.policy"].value
    if policy != _COMPACTED:
        raise ConfigurationError(
            "the ledger topic is not compacted, so that it would lose rows",
            id="TARGET_SETUP_INVALID",
            topic=target.ledger,
            expected="cleanup.policy=compact",
            found=f"cleanup.policy={policy}",
            todo="correct the topic's configuration, or set sink.ledger to another topic",
        )
    return topic_id


def cluster_id(target: KafkaTarget) -> str:
    """Return the id of the cluster; empty if it has none. Raises TransientError if no broker answers in time. If
    brokers reject the credentials, the error has their reason."""
    rejections: list[KafkaError] = []

    def keep_rejection(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            rejections.append(error)

    callbacks: dict[str, Any] = {"error_cb": keep_rejection}
    try:
        with AdminClient({**target._conf(), **callbacks}) as admin:
            try:
                return admin.list_topics(timeout=target.request_timeout_s).cluster_id or ""
            finally:
                admin.poll(0)  # calls the error callback
    except KafkaException as error:
        raise TransientError(
            "the sink's Kafka cluster can't be asked for its id, which shows whether the source reads it",
            id="TARGET_UNAVAILABLE",
            brokers=target.brokers,
            found=target.text(KafkaException(rejections[-1]) if rejections else error),
            todo="make the brokers in sink.brokers reachable; the next run asks again",
        ) from None


def _created(target: KafkaTarget, admin: AdminClient) -> str:
    new_topic = NewTopic(target.ledger, target.ids, config={"cleanup.policy": _COMPACTED, **_SMALL})
    error = target.answers(admin.create_topics([new_topic]))[target.ledger]
    if isinstance(error, KafkaException) and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
        raise error
    for _ in tries(_LOOKS, first_wait_s=0.05):  # until all brokers have it
        if topic_id := target.topic_id(admin):
            return topic_id
    raise TransientError(
        "the ledger topic does not exist after its creation", id="TARGET_UNAVAILABLE", topic=target.ledger
    )


def _row(key: bytes, value: bytes | None, topic: str) -> LedgerRow:
    try:
        check_json_version(value or b"", topic=topic, row=str(row_name(key)))
        return from_json(value or b"", LedgerRow)
    except NOT_OURS as error:
        raise CorruptError(
            "a row of the ledger can't be read", id="LEDGER_CORRUPT", topic=topic, found=str(error)
        ) from None


def ledger_problems(
    number: int, rows: Iterable[bytes], unreadable: Mapping[bytes, CorruptError]
) -> Iterator[str | UnknownVersionError]:
    """Yield errors of rows of another version, and texts about invalid rows."""
    for key in rows:
        if row_name(key) is None:
            yield f"partition {number}, key {key[:_SHOWN]!r}: it names no dataset"
    for key, error in unreadable.items():
        text = f"partition {number}, {row_name(key) or f'key {key[:_SHOWN]!r}'}: {error.found}"
        yield error if isinstance(error, UnknownVersionError) else text


def unreadable_ledger(ledger: str, problems: Sequence[str | UnknownVersionError]) -> CorruptError:
    for problem in problems:
        if isinstance(problem, UnknownVersionError):
            return problem
    damaged = [str(problem) for problem in problems]
    more = f"; and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    return CorruptError(
        "rows of the ledger can't be read",
        id="LEDGER_CORRUPT",
        topic=ledger,
        found="; ".join(damaged[:_NAMED]) + more,
        todo="revoke the write permission of other programs on this topic. Then write the last valid value under the"
        " key of each unreadable row. Commits continue after Kafka has compacted the topic",
    )
