"""Work distribution over ingest tasks: one task reads each work unit, and no task reads much more than the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.task_reports import Report
from distcommit.engine.planning.plan_checks import LARGEST_SIZE
from distcommit.engine.planning.plan_partition import PlanReport, build_manifest, plan_partition
from distcommit.engine.planning.work_distribution import MAX_REPORTED_UNITS, Loads, buckets_read, load_of, units_read
from distcommit.engine.reading.task_plan import ingest_tasks
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.state.run_plans import Manifest, PlanReader
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.test_commit_groups import TableSink
from tests.unit.engine.driver.machines import Machine

SETTINGS = World().begin(Machine(), ModelSource({}))
LOW, HIGH = Watermark({"0": 0}), Watermark({"0": 1})


def plans_of(sizes: Mapping[int, Sequence[int]]) -> dict[int, list[DatasetPlan]]:
    """Build plans by bucket, with a dataset for each size."""

    def plan(bucket: int, place: int, size: int) -> DatasetPlan:
        unit = WorkUnit(f"{bucket:05d}_{place:06d}", f"{bucket}.{place}", LOW, HIGH, size)
        return DatasetPlan(unit.dataset_urn, None, LOW, (unit,))

    return {bucket: [plan(bucket, at, size) for at, size in enumerate(some)] for bucket, some in sizes.items()}


def reports_of(plans: Mapping[int, Sequence[DatasetPlan]], partitions: int) -> list[PlanReport]:
    """Return the partitions' reports of these plans."""
    loads = [Loads() for _ in range(partitions)]
    for bucket, some in plans.items():
        loads[bucket % partitions].add(bucket, [unit for plan in some for unit in plan.work_units])
    return [
        PlanReport(Report(), dict.fromkeys(each.by_bucket, "a.parquet"), each.by_bucket, (*each.largest,))
        for each in loads
    ]


def read_by_tasks(
    settings: RunSettings, manifest: Manifest, plans: Mapping[int, Sequence[DatasetPlan]]
) -> list[list[WorkUnit]]:
    """Return the work units of each task."""
    reports = []
    for task in range(ingest_tasks(settings, manifest)):
        partition = task - len(manifest.large_units)
        owned = settings.buckets_of(partition) if partition >= 0 else ()
        buckets = buckets_read(manifest, task, owned, settings.partitions)
        assert len(buckets) == len(set(buckets))
        shares = [units_read(manifest, task, bucket, plans.get(bucket, ()), settings.partitions) for bucket in buckets]
        reports.append([unit for units in shares for unit in units])
    return reports


def loads_of(tasks: Sequence[Sequence[WorkUnit]]) -> list[int]:
    return [sum(map(load_of, units)) for units in tasks]


SIZES = st.dictionaries(
    st.integers(0, 30), st.lists(st.integers(0, 9) | st.integers(0, LARGEST_SIZE), max_size=90), max_size=20
)


@settings(deadline=None)
@given(SIZES, st.integers(1, 9))
def test_each_work_unit_is_read_by_one_task_and_no_task_exceeds_its_share_by_much(
    sizes: dict[int, list[int]], partitions: int
) -> None:
    plans = plans_of(sizes)
    run = replace(SETTINGS, partitions=partitions, store=replace(SETTINGS.store, buckets=31))
    manifest = build_manifest(run, reports_of(plans, partitions))
    tasks = read_by_tasks(run, manifest, plans)
    read = Counter(unit.work_unit_id for units in tasks for unit in units)
    assert read == Counter(unit.work_unit_id for some in plans.values() for plan in some for unit in plan.work_units)
    small = tasks[len(manifest.large_units) :]
    mean = sum(loads_of(small)) / partitions
    largest = max((load_of(unit) for units in small for unit in units), default=0)
    assert max(loads_of(small)) <= max(mean, largest) * 9 / 8 + largest + 1
    assert len(manifest.lent_ranges) <= len(sizes) + 2 * partitions, "the driver message does not grow with datasets"


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 30), st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 9))
def test_small_work_units_leave_no_task_more_than_a_third_above_the_mean(
    counts: dict[int, int], partitions: int
) -> None:
    sizes = {bucket: [(place * 7) % 10 for place in range(count)] for bucket, count in counts.items()}
    plans = plans_of(sizes)
    run = replace(SETTINGS, partitions=partitions, store=replace(SETTINGS.store, buckets=31))
    manifest = build_manifest(run, reports_of(plans, partitions))
    loads = loads_of(read_by_tasks(run, manifest, plans))
    if sum(loads) / partitions > 60:
        assert not manifest.large_units
        assert max(loads) <= 1.3 * sum(loads) / partitions


def test_partition_reads_its_own_buckets_unless_it_exceeds_others_by_an_eighth() -> None:
    run = replace(SETTINGS, partitions=2, store=replace(SETTINGS.store, buckets=4))
    balanced = plans_of({0: [1] * 50, 1: [1] * 50, 2: [1] * 60, 3: [1] * 40})
    assert build_manifest(run, reports_of(balanced, 2)).lent_ranges == ()
    skewed = plans_of({0: [1] * 50, 1: [1] * 50, 2: [1] * 80, 3: [1] * 20})
    manifest = build_manifest(run, reports_of(skewed, 2))
    assert [(part.partition, part.bucket) for part in manifest.lent_ranges] == [(1, 2)]
    assert [len(units) for units in read_by_tasks(run, manifest, skewed)] == [100, 100]


def test_large_work_units_get_tasks_of_their_own_and_do_not_count_in_the_remaining_shares() -> None:
    run = replace(SETTINGS, partitions=2, store=replace(SETTINGS.store, buckets=2))
    plans = plans_of({0: [1] * 100 + [10_000] + [1] * 100, 1: [9_000]})
    manifest = build_manifest(run, reports_of(plans, 2))
    assert manifest.large_units == (((0, "00000_000100"),), ((1, "00001_000000"),))
    assert [len(units) for units in read_by_tasks(run, manifest, plans)] == [1, 1, 100, 100]


def test_nothing_is_lent_when_work_units_are_fewer_than_partitions() -> None:
    run = replace(SETTINGS, partitions=10, store=replace(SETTINGS.store, buckets=10))
    plans = plans_of({0: [40, 40, 40], 1: [1000]})
    manifest = build_manifest(run, reports_of(plans, 10))
    assert len(manifest.lent_ranges) == 2, "one range for each reading task"
    assert sorted(map(len, read_by_tasks(run, manifest, plans)))[-4:] == [1, 1, 1, 1]


def test_partition_names_only_its_largest_work_units() -> None:
    loads = Loads()
    loads.add(3, [unit for plan in plans_of({3: range(1000)})[3] for unit in plan.work_units])
    assert sorted(load for load, _, _ in loads.largest) == list(range(1001 - MAX_REPORTED_UNITS, 1001))


@pytest.mark.parametrize("table", ["one", ""])
def test_thousands_of_datasets_of_one_table_are_read_by_all_tasks(table: str) -> None:
    """The test uses the planner and its files. Without a table the buckets are balanced, and their owners read
    everything.
    """
    world, machine = World(buckets=16, partitions=4), Machine()
    source = ModelSource({f"dataset-{number:05d}": ModelDataset({"0": 3}) for number in range(5000)})
    run = world.begin(machine, source, sink=TableSink(tables=lambda urn: table or urn))
    for partition in range(4):
        recover_partition(run, partition)
    manifest = build_manifest(run, [plan_partition(run, partition) for partition in range(4)])
    assert len(manifest.files) == (1 if table else 16)
    reader = PlanReader(run.store.fs, run.store.roots.store, manifest)
    plans = {b: reader.of(b) for b in manifest.files}
    tasks = read_by_tasks(run, manifest, plans)
    assert len({unit.dataset_urn for units in tasks for unit in units}) == sum(map(len, tasks)) == 5000
    assert max(loads_of(tasks)) <= (1.001 if table else 1.125) * 4 * 1250
    assert bool(manifest.lent_ranges) is bool(table)
    by_owners = read_by_tasks(run, structs.replace(manifest, lent_ranges=()), plans)
    assert max(loads_of(by_owners)) == (20_000 if table else max(loads_of(tasks)))
