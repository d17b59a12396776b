"""An added partition whose first reads published nothing: its stored state does not count as an operator's position."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from distcommit.app.demo.broker import MockBroker
from distcommit.core.records.log_records import (
    DatasetState,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    OperatorAction,
    OperatorDecision,
    Record,
)
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from tests.unit.sources.kafka.test_kafka_plan import Elsewhere, plan_of, plans, ranges, read_to, source

ADDED = "grown@1"
NAME = SequenceName(ADDED, 3)
SEALED = SealedSequence(
    dataset_urn=ADDED, epoch=3, low=None, high=Watermark({"1": 5}), steps=(), start={"1": 0}, records=5
)
HISTORIES: dict[str, tuple[Record, ...]] = {
    "a run could not read it": (
        ReadFailures(3, (DatasetReadFailure(ADDED, None, Watermark({"1": 5}), "no leader", outage=True),)),
    ),
    "its first sequence was held, and dropped": (
        Intent(3, (SEALED,), Gate.HELD),
        Fence(4, "next"),
        Dropped(4, (NAME,)),
    ),
    "its first sequence was abandoned": (
        Intent(3, (SEALED,)),
        Failed(3, NAME, True, "lost"),
        OperatorDecision(OperatorAction.REVOKING, NAME, "me"),
        OperatorDecision(OperatorAction.ABANDONED, NAME, "me"),
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker.start({"grown": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in (0, 1):
            for number in range(5):
                producer.produce("grown", str(number), partition=partition)
        assert producer.flush(20) == 0
        del producer
        yield broker


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_added_partition_whose_first_reads_published_nothing_is_read_from_its_beginning(
    broker: MockBroker, history: tuple[Record, ...]
) -> None:
    kafka = source(broker.bootstrap_servers, topics=["grown"], dataset="partition", start="latest")
    others = read_to("grown@0", p0=2)
    first = plans(kafka, Elsewhere(others), owned=lambda urn: urn == ADDED)
    assert ranges(plan_of(first[ADDED])) == [{"1": (0, 5)}], "the first run reads all of it"
    fold = Fold()
    for number, record in enumerate((Fence(3, "first"), *history), 1):
        apply(number, record, fold)
    assert not fold.ignored, fold.ignored
    own: dict[str, DatasetState] = {ADDED: fold.state_of(ADDED)}
    assert own[ADDED].watermark is None
    again = plans(kafka, Elsewhere(others, own), owned=lambda urn: urn == ADDED)
    assert ranges(plan_of(again[ADDED])) == [{"1": (0, 5)}], "the next run begins at the first unpublished offset"
