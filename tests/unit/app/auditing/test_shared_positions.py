"""The audit finds source positions that two datasets published, on files written by real runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Producer

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.offsets.shared_positions import SharedRange
from distcommit.app.demo.broker import MockBroker
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import Source
from distcommit.engine.driver.run import run
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.kafka.topics import topic_of_dataset
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import NOTHING, Machine, go, launch

WORLD = World(buckets=2)
BY_NAME = Provenance("partition", "offset", offset_space_of=topic_of_dataset)
BY_ID = replace(BY_NAME, unique_incarnations=True)


def ingested(provenance: Provenance, *, at_least_once: bool = False, **datasets: ModelDataset) -> AuditResult:
    """Ingest datasets in one run and return the audit. In their names, `_at_` is replaced by an @."""
    machine = Machine()
    named = {urn.replace("_at_", "@"): dataset for urn, dataset in datasets.items()}
    assert go(WORLD, machine, ModelSource(named)).succeeded
    return audit_store(WORLD.store(machine), provenance, deep=True, at_least_once=at_least_once)


def test_positions_published_by_a_topic_and_by_its_partition_are_reported() -> None:
    result = ingested(
        BY_NAME,
        orders=ModelDataset({"0": 9, "1": 5}, units=3, holes={"0": frozenset({4})}),
        orders_at_0=ModelDataset({"0": 7}),
        orders_at_2=ModelDataset({"2": 7}),
        others=ModelDataset({"0": 9}),
    )
    names = ("orders", "orders@0")
    assert result.shared_positions == [SharedRange(names, "0", 0, 4), SharedRange(names, "0", 5, 7)]
    assert (result.shared_positions_count, result.duplicates, result.exact, result.passed) == (6, 6, False, False)
    assert sum(row.duplicates for row in result.partitions) == 0, "no dataset has duplicates of its own"


def test_shared_positions_are_counted_and_pass_with_at_least_once() -> None:
    result = ingested(BY_NAME, at_least_once=True, orders=ModelDataset({"0": 3}), orders_at_0=ModelDataset({"0": 3}))
    assert (result.shared_positions_count, result.exact, result.passed) == (3, False, True)


def test_datasets_of_a_source_without_offset_spaces_share_no_positions() -> None:
    dataset = ModelDataset({"0": 9}, incarnation="one")
    result = ingested(ModelSource.provenance, orders=dataset, orders_at_0=dataset)
    assert (result.exact, result.shared_positions_count) == (True, 0)


@pytest.mark.parametrize(
    ("first", "second", "shared"), [("one", "one", 4), ("one", "two", 0), ("one", "", 4), ("", "one", 4), ("", "", 4)]
)
def test_datasets_of_one_topic_share_positions_unless_both_incarnations_are_known_to_differ(
    first: str, second: str, shared: int
) -> None:
    result = ingested(
        BY_ID,
        orders=ModelDataset({"0": 4}, incarnation=first),
        orders_at_0=ModelDataset({"0": 4}, incarnation=second),
    )
    assert (result.shared_positions_count, result.exact) == (shared, not shared)
    assert [row.incarnation for row in result.shared_positions] == [first or second] * bool(shared)


@pytest.mark.parametrize(("provenance", "shared"), [(BY_ID, 4), (BY_NAME, 0)])
def test_dataset_published_under_another_name_is_recognized_by_its_incarnation(
    provenance: Provenance, shared: int
) -> None:
    dataset = ModelDataset({"0": 4}, incarnation="one")
    result = ingested(provenance, orders=dataset, archive=dataset)
    assert result.shared_positions_count == shared


def test_positions_published_by_three_datasets_count_twice() -> None:
    dataset = ModelDataset({"0": 4})
    result = ingested(BY_NAME, orders=dataset, orders_at_0=dataset, orders_at_x=dataset)
    assert result.shared_positions_count == 8
    assert len(result.shared_positions) == 3


def test_shared_positions_of_earlier_incarnations_are_reported() -> None:
    machine = Machine()
    old, new = ModelDataset({"0": 4}, incarnation="one"), ModelDataset({"0": 2}, incarnation="two")
    go(WORLD, machine, ModelSource({"orders": old, "orders@0": old}))
    operator_actions.set_watermark(WORLD.store(machine), "orders", None, "person")
    go(WORLD, machine, ModelSource({"orders": new}))
    result = audit_store(WORLD.store(machine), BY_ID, deep=False)
    assert [(row.low, row.high, row.incarnation) for row in result.shared_positions] == [(0, 4, "one")]


def test_only_the_first_hundred_shared_ranges_are_listed() -> None:
    odd = frozenset(range(1, 300, 2))
    dataset = ModelDataset({"0": 300}, holes={"0": odd})
    result = ingested(BY_NAME, orders=dataset, orders_at_0=dataset)
    assert (len(result.shared_positions), result.shared_positions_count) == (100, 150)


def test_kafka_topic_read_by_topic_and_by_partition_is_reported_as_shared() -> None:
    """The job reads one topic first as one dataset and then by partitions."""
    machine = Machine()
    with MockBroker.start({"orders": 2, "others": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic, partition in (("orders", 0), ("orders", 1), ("others", 0)):
            for number in range(5):
                producer.produce(topic, str(number), partition=partition)
        assert producer.flush(30) == 0
        source = KafkaSource(type="kafka", brokers=broker.bootstrap_servers, topics=("orders", "others"))
        read(machine, source)
        assert audit_store(WORLD.store(machine), KafkaSource.provenance, deep=True).exact
        read(machine, source.model_copy(update={"dataset": "partition", "topics": ("orders",)}))
    for deep in (False, True):
        result = audit_store(WORLD.store(machine), KafkaSource.provenance, deep=deep)
        expected = [SharedRange(("orders", f"orders@{partition}"), partition, 0, 5) for partition in "01"]
        assert result.shared_positions == expected
        assert (result.duplicates, result.exact) == (10, False)


def read(machine: Machine, source: Source) -> None:
    settings = WORLD.begin(machine, NOTHING)
    result = run(launch, replace(settings, flow=replace(settings.flow, source=source)))
    assert result.succeeded, result
    end_run(settings.store, settings.epoch, clean=True)
