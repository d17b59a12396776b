"""The audit finds source positions that two datasets have published, on files that runs of the product have written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Producer

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.shared_positions import SharedRange
from distcommit.app.demo.broker import MockBroker
from distcommit.core.interfaces.source import Source
from distcommit.core.provenance import Provenance
from distcommit.engine.driver.run import run
from distcommit.sources.kafka.names import topic_of_dataset
from distcommit.sources.kafka.source import KafkaSource
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import NOTHING, Machine, go, launch

WORLD = World(buckets=2)
BY_NAME = Provenance("partition", "offset", offset_space_of=topic_of_dataset)
BY_ID = replace(BY_NAME, unique_incarnations=True)


def ingested(provenance: Provenance, *, at_least_once: bool = False, **datasets: ModelDataset) -> AuditResult:
    """What the audit says of datasets, whose names have `_at_` for an @, that one run has read."""
    machine = Machine()
    named = {urn.replace("_at_", "@"): dataset for urn, dataset in datasets.items()}
    assert go(WORLD, machine, ModelSource(named)).succeeded
    return audit_store(WORLD.store(machine), provenance, deep=True, at_least_once=at_least_once)


def test_a_topic_and_one_of_its_partitions_have_published_the_same() -> None:
    found = ingested(
        BY_NAME,
        orders=ModelDataset({"0": 9, "1": 5}, units=3, holes={"0": frozenset({4})}),
        orders_at_0=ModelDataset({"0": 7}),
        orders_at_2=ModelDataset({"2": 7}),
        others=ModelDataset({"0": 9}),
    )
    names = ("orders", "orders@0")
    assert found.published_by_two == [SharedRange(names, "0", 0, 4), SharedRange(names, "0", 5, 7)]
    assert (found.published_by_two_count, found.duplicates, found.exact, found.passed) == (6, 6, False, False)
    assert sum(row.duplicates for row in found.partitions) == 0, "each by itself has none"


def test_at_least_once_counts_them_and_lets_them_pass() -> None:
    found = ingested(BY_NAME, at_least_once=True, orders=ModelDataset({"0": 3}), orders_at_0=ModelDataset({"0": 3}))
    assert (found.published_by_two_count, found.exact, found.passed) == (3, False, True)


def test_datasets_of_a_source_that_says_nothing_count_in_things_of_their_own() -> None:
    dataset = ModelDataset({"0": 9}, incarnation="one")
    found = ingested(ModelSource.provenance, orders=dataset, orders_at_0=dataset)
    assert (found.exact, found.published_by_two_count) == (True, 0)


@pytest.mark.parametrize(
    ("first", "second", "shared"), [("one", "one", 4), ("one", "two", 0), ("one", "", 4), ("", "one", 4), ("", "", 4)]
)
def test_of_one_name_only_surely_different_incarnations_are_apart(first: str, second: str, shared: int) -> None:
    found = ingested(
        BY_ID,
        orders=ModelDataset({"0": 4}, incarnation=first),
        orders_at_0=ModelDataset({"0": 4}, incarnation=second),
    )
    assert (found.published_by_two_count, found.exact) == (shared, not shared)
    assert [row.incarnation for row in found.published_by_two] == [first or second] * bool(shared)


@pytest.mark.parametrize(("provenance", "shared"), [(BY_ID, 4), (BY_NAME, 0)])
def test_a_dataset_under_another_name_is_known_by_its_id(provenance: Provenance, shared: int) -> None:
    dataset = ModelDataset({"0": 4}, incarnation="one")
    found = ingested(provenance, orders=dataset, archive=dataset)
    assert found.published_by_two_count == shared


def test_what_three_have_published_is_there_twice_too_often() -> None:
    dataset = ModelDataset({"0": 4})
    found = ingested(BY_NAME, orders=dataset, orders_at_0=dataset, orders_at_x=dataset)
    assert found.published_by_two_count == 8
    assert len(found.published_by_two) == 3


def test_incarnations_of_before_a_source_was_made_again_count_too() -> None:
    machine = Machine()
    old, new = ModelDataset({"0": 4}, incarnation="one"), ModelDataset({"0": 2}, incarnation="two")
    go(WORLD, machine, ModelSource({"orders": old, "orders@0": old}))
    operator_actions.set_watermark(WORLD.store(machine), "orders", None, "person")
    go(WORLD, machine, ModelSource({"orders": new}))
    found = audit_store(WORLD.store(machine), BY_ID, deep=False)
    assert [(row.low, row.high, row.incarnation) for row in found.published_by_two] == [(0, 4, "one")]


def test_only_the_first_hundred_ranges_are_listed() -> None:
    odd = frozenset(range(1, 300, 2))
    dataset = ModelDataset({"0": 300}, holes={"0": odd})
    found = ingested(BY_NAME, orders=dataset, orders_at_0=dataset)
    assert (len(found.published_by_two), found.published_by_two_count) == (100, 150)


def test_kafka_topics_and_their_partitions_are_told_by_their_names() -> None:
    """The same topic, first as one dataset, then by partitions."""
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
        found = audit_store(WORLD.store(machine), KafkaSource.provenance, deep=deep)
        expected = [SharedRange(("orders", f"orders@{partition}"), partition, 0, 5) for partition in "01"]
        assert found.published_by_two == expected
        assert (found.duplicates, found.exact) == (10, False)


def read(machine: Machine, source: Source) -> None:
    settings = WORLD.begin(machine, NOTHING)
    result = run(launch, replace(settings, flow=replace(settings.flow, source=source)))
    assert result.succeeded, result
    end_run(settings.store, settings.epoch, clean=True)
