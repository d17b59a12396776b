"""Messages and ledger rows, without a broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    CommitterContext,
    FailedForGood,
    RetryLater,
)
from distcommit.core.interfaces.ledger import Covered, LedgerRow
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Origin, StagingArea
from distcommit.core.work_units import SkippedRange
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.kafka.client import KafkaTarget
from distcommit.sinks.kafka.committer import KafkaCommitter
from distcommit.sinks.kafka.messages import KafkaWriter, Mapping


def test_holes_without_a_message_are_returned_for_the_log(tmp_path: Path) -> None:
    mapping = Mapping("bytes", "key", "value", "", "", "")
    area = StagingArea(LocalFileSystem(), str(tmp_path), "attempt", str(tmp_path / "output"))
    writer = KafkaWriter(mapping, area, Origin(Provenance("partition", "offset"), incarnation="topic-id"), "ledger-id")
    hole = SkippedRange("0", 3, 9, "no record", True, "topic-id")
    writer.note_holes([hole])
    prepared = writer.prepare_commit()
    assert not prepared.infos
    assert list(prepared.holes) == [hole]


@pytest.mark.parametrize("calls", [1, 8])
def test_messages_are_staged_in_the_background_if_calls_wait_for_a_network(tmp_path: Path, calls: int) -> None:
    area = StagingArea(LocalFileSystem(parallel_calls=calls), str(tmp_path), "attempt", str(tmp_path / "output"))
    writer = KafkaWriter(Mapping("bytes", "", "value", "", "", ""), area, Origin(), "ledger-id")
    assert writer.prepares_in_background == (calls > 1)


class Messages:
    """A producer that makes messages visible on commit."""

    def __init__(self) -> None:
        self._sent: list[bytes] = []
        self.seen: list[bytes] = []

    def begin_transaction(self) -> None:
        self._sent = []

    def produce(self, topic: str, value: bytes, key: bytes | None = None, **more: Any) -> None:
        self._sent += [value] if topic == "topic" else []

    def __len__(self) -> int:
        return 0

    def abort_transaction(self, timeout_s: float) -> None: ...

    def commit_transaction(self, timeout_s: float) -> None:
        self.seen += self._sent


class Staged:
    """Staged messages of two datasets, and their committer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.context = CommitterContext(LocalFileSystem(), str(folder), str(folder), "store")
        self.requests = {number: self._prepared(urn) for number, urn in enumerate("ab")}

    def _prepared(self, urn: str) -> CommitRequest:
        (self._folder / urn).mkdir()
        area = StagingArea(LocalFileSystem(), str(self._folder / urn), urn, str(self._folder))
        writer = KafkaWriter(Mapping("bytes", "", "value", "", "", ""), area, Origin(), "ledger-id")
        writer.write(pa.record_batch({"value": [f"message of {urn}".encode() * 9]}))
        return CommitRequest(urn, 1, tuple(writer.prepare_commit().infos))

    def flip(self, urn: str) -> None:
        """Flip one byte of a message."""
        (path,) = (self._folder / urn).iterdir()
        data = path.read_bytes()
        path.write_bytes(data.replace(b"message", b"massage", 1))

    def committed(self, requests: dict[int, CommitRequest]) -> tuple[list[bytes], dict[int, CommitOutcome]]:
        """Commit the requests; return the visible messages and the failed requests."""
        target = KafkaTarget("localhost:1", (("log_level", "0"),), "the-ledger", 1, 10, 30)
        producer: Any = Messages()
        with closing(KafkaCommitter(target, "topic", self.context, create=False)) as committer:
            failed = committer._transaction(producer, 0, requests, {})
        return producer.seen, failed


def test_messages_whose_staged_bytes_changed_are_never_sent(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    staged.flip("b")
    chunks, failed = staged.committed(staged.requests)
    assert (chunks, list(failed)) == ([], [1]), "no message of the transaction is visible"
    assert isinstance(failed[1], FailedForGood)
    assert "are damaged [path=b/messages-0.arrow]; expected the staged bytes" in failed[1].reason
    assert staged.committed({0: staged.requests[0]}) == ([b"message of a" * 9], {})


class SmallMessages:
    """A producer that rejects messages above 200 bytes, as the client does by `message.max.bytes`."""

    def __init__(self) -> None:
        self.aborted = 0

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        if len(value) > 200:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    def abort_transaction(self, timeout_s: float) -> None:
        self.aborted += 1


def test_ledger_row_too_large_for_a_message_is_reported_for_its_dataset(tmp_path: Path) -> None:
    context = CommitterContext(LocalFileSystem(), str(tmp_path), str(tmp_path), "store")
    target = KafkaTarget("localhost:1", (("log_level", "0"),), "the-ledger", 1, 10, 30)
    requests = {3: CommitRequest("small", 1, ()), 5: CommitRequest("wide", 1, ())}
    gaps = Covered(incarnation="topic-id", branches=("main",), offsets="0" * 300)
    rows = {
        b"s": LedgerRow(dataset_urn="small", branch="main"),
        b"w": LedgerRow(dataset_urn="wide", branch="main", covered=(gaps,)),
    }
    producer: Any = SmallMessages()
    with closing(KafkaCommitter(target, "topic", context, create=False)) as committer:
        ((index, outcome),) = committer._transaction(producer, 0, requests, rows).items()
    assert index == 5
    assert isinstance(outcome, RetryLater)
    for text in ("the-ledger", "'wide'", "max.message.bytes", "sink.client"):
        assert text in outcome.reason
    assert producer.aborted == 1
