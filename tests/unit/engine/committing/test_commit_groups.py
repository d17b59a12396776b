"""Commit groups: datasets that are committed to one target together share a bucket, by a stable rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from distcommit.core.commit_groups import CommitGroups, bucket_of
from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.committer import FailedForGood
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.reading.task_plan import ingest_tasks
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.run_plans import put_manifest
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, source
from tests.unit.engine.driver.test_custom_sinks import MemorySink, answer_for, run_with

WORLD = World(buckets=16, partitions=4)
NUMBERS = itertools.count()
MANY = ModelSource({f"topic-{number:03d}": ModelDataset({"0": 1}) for number in range(60)})


@dataclass
class TableSink(MemorySink):
    """A sink with one table for several datasets."""

    grouped_by: ClassVar[str] = "table"
    tables: Callable[[str], str] = lambda urn: "all"

    def commit_group(self, dataset_urn: str) -> str:
        return self.tables(dataset_urn)


def logs(machine: Machine) -> list[str]:
    return sorted(path for path in machine.paths("/job/store/log") if path.endswith(".seg"))


def planned(machine: Machine, sink: TableSink | MemorySink) -> tuple[RunSettings, int]:
    settings = WORLD.begin(machine, MANY, sink=sink)
    for partition in range(WORLD.partitions):
        recover_partition(settings, partition)
    manifest = build_manifest(settings, [plan_partition(settings, partition) for partition in range(WORLD.partitions)])
    put_manifest(settings.store.fs, settings.store.roots.store, manifest)
    return settings, ingest_tasks(settings, manifest)


def test_datasets_of_a_table_are_in_one_bucket_and_committed_in_one_call() -> None:
    machine, sink = Machine(), TableSink(tables=lambda urn: urn[0])
    data = source(a1=2, a2=1, a3=1, b1=1)
    assert run_with(sink, machine, data, World(buckets=64, partitions=1)).succeeded
    called = [sorted(request.dataset_urn for request in call) for call in sink.calls]
    assert sorted(called) in ([["a1", "a2", "a3", "b1"]], [["a1", "a2", "a3"], ["b1"]])
    store = World(buckets=64).store(machine)
    assert {*store.bucket_log(bucket_of("a", 64)).refresh().datasets} == {"a1", "a2", "a3"}
    assert {*store.bucket_log(bucket_of("b", 64)).refresh().datasets} == {"b1"}


def test_grouped_datasets_are_committed_only_by_the_bucket_owner_s_tasks_and_the_drain() -> None:
    machine, sink = Machine(), TableSink()
    settings, tasks = planned(machine, sink)
    owner = bucket_of("all", WORLD.buckets) % WORLD.partitions
    before = logs(machine)
    for task in range(tasks):
        if task != owner:
            report = ingest_partition(settings, task)
            assert report.counts.records_read == 15, "reading is distributed over tasks"
    assert (logs(machine), sink.calls) == (before, [])
    report = ingest_partition(settings, owner)
    assert (report.counts.records_read, report.counts.datasets_committed) == (15, 60)
    assert len(sink.rows) == 60
    assert len(sink.calls) <= 16, "at most one call for each commit of the owner"


def test_drain_commits_records_that_others_read_after_the_owner_s_last_commit() -> None:
    machine, sink = Machine(), TableSink()
    settings, tasks = planned(machine, sink)
    owner = bucket_of("all", WORLD.buckets) % WORLD.partitions
    for task in [owner, *(task for task in range(tasks) if task != owner)]:
        ingest_partition(replace(settings, min_interval_s=1_000_000), task)
    assert [len(call) for call in sink.calls] == [15]
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    for partition in range(WORLD.partitions):
        drain_partition(settings, partition)
    assert [len(call) for call in sink.calls] == [15, 45]
    assert len(sink.rows) == 60


def test_without_groups_the_reading_task_commits_its_dataset() -> None:
    machine, sink = Machine(), MemorySink()
    world = World(buckets=1, partitions=2)
    settings = world.begin(machine, MANY, sink=sink)
    for partition in range(2):
        recover_partition(settings, partition)
    manifest = build_manifest(settings, [plan_partition(settings, partition) for partition in range(2)])
    put_manifest(settings.store.fs, settings.store.roots.store, manifest)
    assert [ingest_partition(settings, task).counts.datasets_committed for task in (1, 0)] == [30, 30]


def raises(urn: str) -> str:
    raise KeyError(urn)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (lambda urn: "", "str: ''"),
        (lambda urn: "x" * 1025, "str: 'xxx"),
        (lambda urn: "\ud800", "str: "),
        (lambda urn: None, "NoneType: None"),
        (lambda urn: b"table", "bytes: b'table'"),
        (raises, "KeyError: 'bad'"),
        (lambda urn: f"table-{next(NUMBERS)}", "on the next"),
    ],
)
def test_dataset_without_a_group_is_reported_and_others_continue(group: Callable[[str], str], problem: str) -> None:
    machine = Machine()
    sink = TableSink(tables=lambda urn: group(urn) if urn == "bad" else "good")
    for _ in range(2):
        result = run_with(sink, machine, source(bad=2, well=3, fine=1), WORLD)
        assert not result.succeeded
        (reason,) = result.reasons.entries
        assert (reason.subject, reason.kind) == ("bad", "not planned")
        assert "the sink returned an invalid commit group for a dataset" in reason.text
        assert problem in reason.text
    assert {urn: len(rows) for urn, rows in sink.rows.items()} == {"well": 3, "fine": 1}
    assert WORLD.watermarks(machine) == {"well": Watermark({"0": 3}), "fine": Watermark({"0": 1})}
    store = replace(WORLD.store(machine), groups=CommitGroups(sink))
    with pytest.raises(ConfigurationError, match="returned an invalid commit group"):
        operator_actions.set_watermark(store, "bad", Watermark({"0": 1}), "me")


def test_group_name_of_the_maximum_length_is_accepted() -> None:
    sink = TableSink(tables=lambda urn: "ü" * 512)
    assert run_with(sink, Machine(), source(a=1, b=1), WORLD).succeeded
    assert len(sink.rows) == 2


def test_group_rule_that_changed_silently_is_rejected_before_anything_is_read() -> None:
    machine, sink = Machine(), TableSink()
    assert run_with(sink, machine, source(a=2, b=1), WORLD).succeeded
    rows, watermarks = sink.rows, WORLD.watermarks(machine)
    sink.tables = lambda urn: f"other-{urn}"
    more = source(a=3, b=4)
    with pytest.raises(ConfigurationError, match="in another bucket than the one of its commit group") as caught:
        run_with(sink, machine, more, WORLD)
    assert "other-" in str(caught.value)
    assert (sink.rows, WORLD.watermarks(machine)) == (rows, watermarks)
    sink.tables = lambda urn: "all"
    assert run_with(sink, machine, more, WORLD).succeeded
    assert {urn: len(values) for urn, values in sink.rows.items()} == {"a": 3, "b": 4}
    sink.tables = lambda urn: f"other-{urn}"
    store = replace(WORLD.store(machine), groups=CommitGroups(sink))
    rebucket(store, Move(32), "moves", lambda step: None)
    assert run_with(sink, machine, source(a=4, b=4), World(buckets=32, partitions=4)).succeeded, (
        "the printed remedy resolves the error"
    )
    assert {urn: len(values) for urn, values in sink.rows.items()} == {"a": 4, "b": 4}


def test_dataset_is_listed_by_its_group() -> None:
    machine, sink = Machine(), TableSink(answers=answer_for("stuck", FailedForGood("no")))
    assert not run_with(sink, machine, source(a=2, b=1, stuck=1), WORLD).succeeded
    store = replace(WORLD.store(machine), groups=CommitGroups(sink))
    assert store.bucket_of("stuck") != WORLD.store(machine).bucket_of("stuck")
    with pytest.raises(ConflictError, match="quarantined"):
        operator_actions.retry(WORLD.store(machine), "stuck", "me")
    operator_actions.retry(store, "stuck", "me")
    operator_actions.quarantine(store, "stuck", "me")
    operator_actions.set_watermark(store, "a", Watermark({"0": 1}), "me")
    operator_actions.set_watermarks(store, {"b": Watermark({"0": 0})}, {"b": Watermark({"0": 1})}, "me")
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 1}), "b": Watermark({"0": 0})}
    assert store.bucket_log(store.bucket_of("stuck")).refresh().state_of("stuck").status is DatasetStatus.QUARANTINED


def test_rebucket_keeps_a_group_together_and_needs_a_group_for_each_dataset() -> None:
    machine, sink = Machine(), TableSink(tables=lambda urn: urn[0])
    data = source(a1=2, a2=1, a3=1, b1=1)
    assert run_with(sink, machine, data, World(buckets=4, partitions=1)).succeeded
    store, before = World(buckets=4).store(machine), machine.paths("/job")
    with pytest.raises(ConfigurationError):
        rebucket(
            replace(store, groups=CommitGroups(TableSink(tables=lambda urn: ""))), Move(64), "moves", lambda step: None
        )
    assert machine.paths("/job") == before
    after = rebucket(replace(store, groups=CommitGroups(sink)), Move(64), "moves", lambda step: None).store
    assert {*after.bucket_log(bucket_of("a", 64)).refresh().datasets} == {"a1", "a2", "a3"}
    more = source(a1=3, a2=2, a3=1, b1=2)
    assert run_with(sink, machine, more, World(buckets=64, partitions=1)).succeeded
    assert {*after.bucket_log(bucket_of("b", 64)).refresh().datasets} == {"b1"}
