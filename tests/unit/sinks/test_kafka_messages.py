"""Messages and rows of the ledger where no broker is asked."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from distcommit.fs.local import LocalFileSystem
from distcommit.model.committer import CommitRequest, CommitterContext, RetryLater
from distcommit.model.ledger import Covered, LedgerRow
from distcommit.model.provenance import Provenance
from distcommit.model.sink import Origin, StagingArea
from distcommit.model.work import SkippedRange
from distcommit.sinks.kafka.client import KafkaTarget
from distcommit.sinks.kafka.committer import KafkaCommitter
from distcommit.sinks.kafka.messages import KafkaWriter, Mapping


def test_holes_beside_which_there_is_no_message_are_for_the_log_to_keep(tmp_path: Path) -> None:
    mapping = Mapping("bytes", "key", "value", "", "", "")
    area = StagingArea(LocalFileSystem(), str(tmp_path), "attempt", str(tmp_path / "output"))
    writer = KafkaWriter(mapping, area, Origin(Provenance("partition", "offset"), incarnation="topic-id"), "ledger-id")
    hole = SkippedRange("0", 3, 9, "no record", True, "topic-id")
    writer.note_holes([hole])
    prepared = writer.prepare_commit()
    assert not prepared.infos
    assert list(prepared.holes) == [hole]


class SmallMessages:
    """Takes none of more than 200 bytes, as the client does by `message.max.bytes`."""

    def __init__(self) -> None:
        self.aborted = 0

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        if len(value) > 200:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    def abort_transaction(self, timeout_s: float) -> None:
        self.aborted += 1


def test_a_row_of_the_ledger_that_no_message_can_have_is_told_as_such_and_of_its_dataset(tmp_path: Path) -> None:
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
    for said in ("the-ledger", "'wide'", "max.message.bytes", "sink.client"):
        assert said in outcome.reason
    assert producer.aborted == 1
