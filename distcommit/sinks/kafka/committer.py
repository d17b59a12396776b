"""Committer of records and ledger rows of many datasets in one Kafka transaction.

`init_transactions` fences a transactional id's older producer and ends its transaction. Then the committer reads the
ledger to its end, which has all commits of the id's datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from distcommit.core.errors import ConflictError, DistcommitError, LostError, TransientError, UnknownVersionError
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    HeldBack,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.support.parallel import run_parallel
from distcommit.sinks.base.idempotent_commit import allowed_again, answered, committed, taken_back
from distcommit.sinks.base.offset_coverage import covered_in
from distcommit.sinks.base.retries import tries
from distcommit.sinks.base.table_names import DATASET
from distcommit.sinks.databases.staged_rows import files_of
from distcommit.sinks.kafka.catchable_producer import CatchableProducer
from distcommit.sinks.kafka.client import KafkaTarget, ledger_problems, unreadable_ledger
from distcommit.sinks.kafka.messages import staged_messages
from distcommit.sinks.kafka.topic_names import id_number, ledger_key, row_name, topic_of

_TRIES = 4
_AT_ONCE = 8
_SIZE, _SETTINGS = "raise max.message.bytes of the topic", "let the topic's settings allow such records"
_CHANGES: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: _SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: _SIZE,
    KafkaError.INVALID_MSG_SIZE: _SIZE,
    KafkaError.INVALID_MSG: _SETTINGS,
    KafkaError.INVALID_TIMESTAMP: _SETTINGS,
    KafkaError.INVALID_RECORD: _SETTINGS,
    KafkaError._UNKNOWN_PARTITION: "give the topic the partitions that sink.partition names",
}  # later runs fail too until these are solved
_OF_A_MESSAGE = frozenset(
    (
        *_CHANGES,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
    )
)
"""Errors that concern one message or topic."""
Failures = dict[int, CommitOutcome]
Note = Callable[[KafkaError | None, Message | None], None]


class _TooLargeError(Exception):
    """Error of a ledger row that is larger than a message may be; `index` is its index in the rows to send."""

    def __init__(self, text: str, index: int) -> None:
        super().__init__(text)
        self.index = index


class KafkaCommitter(SinkCommitter):
    """Committer with one transaction for each transactional id, for up to eight ids at a time.

    Args:
        create: whether to create missing topics; otherwise their requests fail.
    """

    def __init__(self, target: KafkaTarget, topic: str, context: CommitterContext, *, create: bool) -> None:
        self._target, self._topic, self._context, self._create = target, topic, context, create
        self._closing = ExitStack()
        self._admin = self._closing.enter_context(target.admin())

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self._commit(requests, atomic=False)

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self._commit(requests, atomic=True)

    def _commit(self, requests: Sequence[CommitRequest], *, atomic: bool) -> list[CommitOutcome]:
        outcomes: dict[int, CommitOutcome] = {}
        ledger_id = self._ledger_id()
        for index, request in enumerate(requests):
            if any(info["ledger"] != ledger_id for info in request.infos):
                outcomes[index] = FailedForGood(
                    f"the ledger topic {self._target.ledger} was recreated after this was prepared, so that it is"
                    " unknown what is committed. Inspect the topic, then release the dataset with accept or abandon"
                )
        outcomes |= _held_back(requests, outcomes) if atomic else {}
        by_id: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            if index not in outcomes:
                by_id.setdefault(id_number(request.dataset_urn, self._target.ids), []).append(index)

        def act(number: int) -> None:
            answers = self._commit_by_id(number, [requests[index] for index in by_id[number]], atomic=atomic)
            outcomes.update(zip(by_id[number], answers, strict=True))

        run_parallel(_AT_ONCE, act, list(by_id))
        return [outcomes[index] for index in range(len(requests))]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        """Prevent requests from being committed. Raises ConflictError, without any change, if a request or a later
        epoch is committed, because Kafka can't delete records."""
        by_id: dict[int, list[CommitRequest]] = {}
        for request in requests:
            by_id.setdefault(id_number(request.dataset_urn, self._target.ids), []).append(request)
        for writes in (False, True):
            for number, members in by_id.items():
                with self._session(number) as producer:
                    rows = self._target.rows(self._admin, number)
                    keys = {ledger_key(self._context.store_id, request): request for request in members}
                    changed = {key: _revoked(rows.get(key), request) for key, request in keys.items()}
                    if writes:
                        producer.begin_transaction()
                        _send_rows(producer, self._target.ledger, number, changed)
                        producer.commit_transaction(self._target.request_timeout_s)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            number, key = id_number(request.dataset_urn, self._target.ids), ledger_key(self._context.store_id, request)
            with self._session(number) as producer:
                row = self._target.rows(self._admin, number).get(key)
                allowed = allowed_again(row, request)
                if allowed is not None and allowed != row:
                    producer.begin_transaction()
                    _send_rows(producer, self._target.ledger, number, {key: allowed})
                    producer.commit_transaction(self._target.request_timeout_s)

    def ledger(self) -> Iterator[LedgerRow]:
        """Yield the store's valid rows. Then raise UnknownVersionError or CorruptError if an unreadable row, also of
        another store, prevents commits to its partition."""
        problems: list[str | UnknownVersionError] = []
        for number in range(self._target.ids):
            rows, unreadable = self._target.readable_rows(self._admin, number)
            for key, row in rows.items():
                if (name := row_name(key)) is not None and name.store_id == self._context.store_id:
                    yield row
            problems += ledger_problems(number, rows, unreadable)
        if problems:
            raise unreadable_ledger(self._target.ledger, problems)

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        if DATASET not in self._topic:
            return None
        return self._target.count(self._admin, topic_of(self._topic, dataset_urn))

    def probe(self) -> None:
        """Describe the ledger topic, and initialize transactions of a transactional id that only probes use."""
        self._ledger_id()
        with closing(self._target.producer(f"distcommit-{self._context.store_id}-probe")) as producer:
            producer.init_transactions(self._target.request_timeout_s)

    def close(self) -> None:
        self._closing.close()

    def _ledger_id(self) -> str:
        if actual := self._target.topic_id(self._admin):
            return actual
        raise TransientError(
            "the ledger topic is gone",
            id="LEDGER_TOPIC_LOST",
            topic=self._target.ledger,
            expected="the topic with the record of all commits",
            found="nothing of that name",
            todo="find out who has deleted it, and which commits were made; then run again, which creates a new ledger,"
            " and release the datasets that were prepared for the old one",
        )

    def _commit_by_id(self, number: int, requests: Sequence[CommitRequest], *, atomic: bool) -> list[CommitOutcome]:
        """Commit the requests of a transactional id. After fencing or a timeout, read the ledger again and retry."""
        denied = False
        for tried in tries(_TRIES, first_wait_s=0.2):
            self.retry_count += 1 if tried > 1 else 0
            try:
                return self._try(number, requests, atomic=atomic, denied=denied)
            except (KafkaException, TransientError, SystemError) as error:
                denied = denied or error.args[:1] == (KafkaError.TOPIC_AUTHORIZATION_FAILED,)
                # SystemError: the client raises that it was fenced, and then runs callbacks of its messages.
                if tried == _TRIES:
                    text = str(error) if isinstance(error, DistcommitError) else self._target.text(error)
                    return [RetryLater(f"Kafka: {text}")] * len(requests)
        raise AssertionError("unreachable")

    def _try(
        self, number: int, requests: Sequence[CommitRequest], *, atomic: bool, denied: bool
    ) -> list[CommitOutcome]:
        """Try once to commit, in as many transactions as necessary.

        `denied`: whether brokers rejected an earlier try because of a topic.
        """
        outcomes: dict[int, CommitOutcome] = {}
        with self._session(number) as producer:
            rows = self._target.rows(self._admin, number)
            self._refuse_topics(producer, rows, requests, outcomes, denied=denied)
            while batch := self._next(rows, requests, outcomes):
                if atomic and (held_back := _held_back(requests, outcomes)):
                    outcomes |= held_back
                    break
                moved = {
                    key: committed(rows.get(key), requests[index], covered_in(requests[index].infos))
                    for key, index in batch.items()
                }
                requested = {index: requests[index] for index in batch.values()}
                failures = self._transaction(producer, number, requested, moved)
                outcomes.update(failures or dict.fromkeys(requested, Committed()))
                if not failures:
                    rows |= moved
        return [outcomes[index] for index in range(len(requests))]

    def _next(
        self, rows: Mapping[bytes, LedgerRow], requests: Sequence[CommitRequest], outcomes: dict[int, CommitOutcome]
    ) -> dict[bytes, int]:
        """Return the requests of the next transaction by ledger row, and set the outcomes of those that need none."""
        batch: dict[bytes, int] = {}
        for index, request in enumerate(requests):
            key = ledger_key(self._context.store_id, request)
            if index in outcomes or key in batch:
                continue
            if (outcome := answered(rows.get(key), request)) is None:
                batch[key] = index
            else:
                outcomes[index] = outcome
        return batch

    def _transaction(
        self,
        producer: CatchableProducer,
        number: int,
        requests: Mapping[int, CommitRequest],
        rows: Mapping[bytes, LedgerRow],
    ) -> Failures:
        """Commit all requests or none. Return outcomes of requests with an error of their own; empty if all were
        committed. After a KafkaException the outcome is unknown."""
        failures: Failures = {}
        producer.begin_transaction()
        for index, request in requests.items():
            topic = topic_of(self._topic, request.dataset_urn)
            note = partial(self._note, index, topic, failures)
            try:
                for path, checksum in files_of(request.infos):
                    messages = staged_messages(self._context, path, checksum)
                    _send(producer, topic, messages, note, failures)
            except LostError as error:
                failures[index] = FailedForGood(str(error))
            if failures:
                break
        if not failures:
            try:
                _send_rows(producer, self._target.ledger, number, rows)
            except _TooLargeError as error:
                failures[list(requests)[error.index]] = RetryLater(str(error))
        if not failures:
            _flush(producer, self._target.request_timeout_s)
        if failures:
            producer.abort_transaction(self._target.request_timeout_s)
            return failures
        producer.commit_transaction(self._target.request_timeout_s)
        return failures

    def _note(self, index: int, topic: str, failures: Failures, error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() in _OF_A_MESSAGE:
            reason = f"a message can't be sent to the topic {topic}: {self._target.text(KafkaException(error))}"
            todo = _CHANGES.get(error.code())
            outcome = FailedForGood(f"{reason}; {todo}, and release the dataset with retry") if todo else None
            failures.setdefault(index, outcome or RetryLater(reason))

    def _refuse_topics(
        self,
        producer: CatchableProducer,
        rows: Mapping[bytes, LedgerRow],
        requests: Sequence[CommitRequest],
        outcomes: dict[int, CommitOutcome],
        *,
        denied: bool,
    ) -> None:
        requested = {
            index: topic_of(self._topic, request.dataset_urn)
            for index, request in enumerate(requests)
            if answered(rows.get(ledger_key(self._context.store_id, request)), request) is None
        }
        present = producer.list_topics(timeout=self._target.request_timeout_s).topics if requested else {}
        missing = sorted({topic for topic in requested.values() if topic not in present})
        if self._create and missing:
            reason = self._target.make_topics(self._admin, missing)
        else:
            reason = dict.fromkeys(missing, "it does not exist; make it, or set sink.create")
        if denied:
            reason |= self._target.unwritable(self._admin, sorted(set(requested.values()) - reason.keys()))
        for index, topic in requested.items():
            if topic == self._target.ledger:
                outcomes[index] = FailedForGood(f"the topic {topic} is the ledger: change sink.topic or sink.ledger")
            elif topic in reason:
                outcomes[index] = RetryLater(f"no records can be sent to the topic {topic}: {reason[topic]}")

    @contextmanager
    def _session(self, number: int) -> Iterator[CatchableProducer]:
        """Open a producer, which fences older producers of the id. An exception aborts its transaction."""
        with closing(self._target.producer(f"distcommit-{self._context.store_id}-{number}")) as producer:
            producer.init_transactions(self._target.request_timeout_s)
            try:
                yield producer
            except BaseException:
                with suppress(KafkaException):
                    producer.abort_transaction(self._target.request_timeout_s)
                raise


def _send(
    producer: CatchableProducer,
    topic: str,
    messages: Iterable[Mapping[str, Any]],
    note: Note,
    failures: Failures,
) -> None:
    for message in messages:
        while not failures:
            try:
                producer.produce(topic, on_delivery=note, **message)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                producer.poll(0)
                note(error.args[0], None)
                if not failures:
                    raise
        if failures:
            return


def _send_rows(producer: CatchableProducer, ledger: str, partition: int, rows: Mapping[bytes, LedgerRow]) -> None:
    for index, (key, row) in enumerate(rows.items()):
        sent = msgspec.json.encode(row)
        try:
            producer.produce(ledger, sent, key, partition=partition)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            raise _TooLargeError(
                f"the row of {row.dataset_urn!r} in the ledger {ledger} has {len(sent)} bytes, more than a message may"
                " have: its offsets have many gaps, for instance as single records are filtered. Nothing was lost."
                " Raise max.message.bytes and segment.bytes of that topic, and message.max.bytes in sink.client",
                index,
            ) from error


def _flush(producer: CatchableProducer, timeout_s: float) -> None:
    remaining = len(producer)
    while remaining:
        now_left = producer.flush(timeout_s)
        if now_left >= remaining:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{now_left} messages are not acknowledged"))
        remaining = now_left


def _held_back(requests: Sequence[CommitRequest], outcomes: Mapping[int, CommitOutcome]) -> Failures:
    failed = [index for index, outcome in outcomes.items() if isinstance(outcome, FailedForGood | RetryLater)]
    remaining = (index for index in range(len(requests)) if index not in outcomes)
    return dict.fromkeys(remaining, HeldBack(requests[min(failed)].dataset_urn)) if failed else {}


def _revoked(row: LedgerRow | None, request: CommitRequest) -> LedgerRow:
    if row is not None and row.epoch == request.epoch:
        raise ConflictError(
            "Kafka can't take back a commit",
            id="COMMIT_NOT_REVERSIBLE",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            todo="release the dataset with accept",
        )
    return taken_back(row, request, ())
