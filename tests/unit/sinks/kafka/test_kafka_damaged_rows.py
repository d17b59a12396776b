"""A damaged row in the ledger topic: inspection reports it beside all other rows, and commits are rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from distcommit.app.auditing.target_ledgers import open_ledgers
from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, CommitterContext
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.kafka.client import KafkaTarget
from distcommit.sinks.kafka.sink import KafkaSink
from distcommit.sinks.kafka.topic_names import id_number, ledger_key
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.testing.fakes.model_source import ModelSource

LANES = 4
NAMES = [f"d{number}" for number in range(8)]
DAMAGED = NAMES[0]
OTHERS = sorted(NAMES[1:])
SINK = KafkaSink.model_validate(
    {"type": "kafka", "brokers": "b:1", "topic": "{dataset}", "ledger": "ledger", "transactional_ids": LANES}
)
Message = tuple[bytes | None, bytes | None]


class Topic:
    """The ledger topic, as brokers return it: key and value of each message, by partition."""

    def __init__(self, store_id: str) -> None:
        self.store_id, self.messages = store_id, dict[int, list[Message]]()
        for name in NAMES:
            self.put(name, msgspec.json.encode(LedgerRow(dataset_urn=name, branch="main", epoch=3)))

    def key(self, name: str) -> bytes:
        return ledger_key(self.store_id, CommitRequest(name, 3, ()))

    def put(self, name: str, value: bytes | None, key: bytes | None = None) -> None:
        self.messages.setdefault(id_number(name, LANES), []).append((self.key(name) if key is None else key, value))

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[Any]:
        for lane in ends:
            for key, value in self.messages[lane]:
                yield SimpleNamespace(key=lambda key=key: key, value=lambda value=value: value)


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    roots = Roots(*(str(tmp_path / name) for name in ("store", "staging", "output")))
    return open_store(LocalFileSystem(durable=False), roots, "job", 1, create=True)


@pytest.fixture
def topic(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> Topic:
    new_topic = Topic(store.store_id)
    ends = iter(range(1_000_000))
    no_producer = SimpleNamespace(
        init_transactions=lambda timeout_s: None, abort_transaction=lambda timeout_s: None, close=lambda: None
    )
    parts: dict[str, Any] = {
        "admin": lambda self: nullcontext(SimpleNamespace()),
        "topic_id": lambda self, admin: "id",
        "producer": lambda self, transactional_id: no_producer,
        "_offset": lambda self, admin, log, spec: next(ends),
        "_committed": new_topic.read,
    }
    for part, act in parts.items():
        monkeypatch.setattr(KafkaTarget, part, act)
    return new_topic


def inspected(store: JobStore) -> tuple[list[str], list[str]]:
    """Return the datasets with rows, and the problems of unreadable rows."""
    flow = TaskFlow.straight(ModelSource({}), SINK)
    with open_ledgers(flow, store) as ledgers:
        return ledgers.folders(), ledgers.unreadable


def context_of(store: JobStore) -> CommitterContext:
    return CommitterContext(store.fs, store.roots.staging, store.roots.output, store.store_id)


def commit(store: JobStore, *names: str) -> list[object]:
    committer = SINK.open_committer(context_of(store))
    return [*committer.commit([CommitRequest(name, 3, ({"ledger": "id", "files": []},)) for name in names])]


@pytest.mark.parametrize(
    "value",
    [b"[]", b"{", b"\xff", b'{"dataset_urn": 1}', b'{"branch": "\xff"}', b'{"x":' + b"[" * 99_999, None],
    ids=lambda value: repr(value)[:20],
)
def test_damaged_row_hides_no_other_from_inspection_and_its_partition_rejects_commits(
    store: JobStore, topic: Topic, value: bytes | None
) -> None:
    assert inspected(store) == (sorted(NAMES), [])
    topic.put(DAMAGED, value)
    datasets, (problem,) = inspected(store)
    assert datasets == OTHERS, "an older row of that dataset does not count"
    assert problem.startswith(
        "ledger of branch main, sink kafka: LEDGER_CORRUPT: rows of the ledger can't be read [topic=ledger]; "
    )
    lane = id_number(DAMAGED, LANES)
    assert f"found partition {lane}, dataset {DAMAGED}, branch main, of store {store.store_id}: " in problem
    beside = [name for name in NAMES if id_number(name, LANES) == lane]
    elsewhere = [name for name in NAMES if name not in beside]
    assert len(beside) > 1
    for name in beside:
        with pytest.raises(CorruptError, match="a row of the ledger can't be read"):
            commit(store, name)
    assert commit(store, *elsewhere) == [AlreadyCommitted()] * len(elsewhere)


@pytest.mark.parametrize("version", [0, 2])
def test_row_of_another_version_is_refused_by_name_and_left_alone(store: JobStore, topic: Topic, version: int) -> None:
    row = msgspec.json.encode(LedgerRow(dataset_urn=DAMAGED, branch="main", epoch=3))
    topic.put(DAMAGED, b'{"version":%d,"news":1,%b' % (version, row[1:]))
    before = {lane: [*messages] for lane, messages in topic.messages.items()}
    expected = rf"unknown format version \[topic=ledger, row=.*{DAMAGED}.*expected version 1; found version {version}\b"
    datasets, (problem,) = inspected(store)
    assert datasets == OTHERS
    assert problem.startswith("ledger of branch main, sink kafka: FORMAT_VERSION_UNKNOWN: ")
    lane = id_number(DAMAGED, LANES)
    for name in NAMES:
        if id_number(name, LANES) == lane:
            with pytest.raises(UnknownVersionError, match=expected):
                commit(store, name)
    with pytest.raises(UnknownVersionError, match=expected):
        SINK.open_committer(context_of(store)).withdraw([CommitRequest(DAMAGED, 3, ())])
    assert topic.messages == before


def test_row_that_names_version_1_is_read(store: JobStore, topic: Topic) -> None:
    row = msgspec.json.encode(LedgerRow(dataset_urn=DAMAGED, branch="main", epoch=3))
    topic.put(DAMAGED, b'{"version":1,' + row[1:])
    assert inspected(store) == (sorted(NAMES), [])


def test_damaged_row_that_a_later_one_replaced_is_still_reported(store: JobStore, topic: Topic) -> None:
    topic.put(DAMAGED, b"[]")
    topic.put(DAMAGED, msgspec.json.encode(LedgerRow(dataset_urn=DAMAGED, branch="main", epoch=4)))
    datasets, problems = inspected(store)
    assert (datasets, len(problems)) == (sorted(NAMES), 1)
    with pytest.raises(CorruptError):
        commit(store, DAMAGED)


@pytest.mark.parametrize("key", [b"", b"no row", b"\xff", b'["\xff"]', b"[1, 2, 3]", b'["store"]', b"{}"], ids=repr)
def test_row_with_a_foreign_key_is_reported_whatever_its_value(store: JobStore, topic: Topic, key: bytes) -> None:
    topic.put("x", msgspec.json.encode(LedgerRow(dataset_urn="x", branch="main", epoch=3)), key)
    datasets, (problem,) = inspected(store)
    assert datasets == sorted(NAMES)
    assert f"found partition {id_number('x', LANES)}, key {key!r}: it names no dataset" in problem


def test_many_damaged_rows_are_counted_and_some_are_named(store: JobStore, topic: Topic) -> None:
    for number in range(30):
        topic.put("x", b"[]", b"%d" % number)
    datasets, (problem,) = inspected(store)
    assert datasets == sorted(NAMES)
    assert problem.count("partition ") == 20
    assert "; and 10 more" in problem
    another = ledger_key("another", CommitRequest("theirs", 3, ()))
    topic.put("theirs", msgspec.json.encode(LedgerRow(dataset_urn="theirs", branch="main", epoch=3)), another)
    assert inspected(store)[0] == sorted(NAMES), "rows of other stores are ignored"
