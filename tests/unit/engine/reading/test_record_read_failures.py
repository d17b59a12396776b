"""Read failures over several runs: what is recorded, what the next run reads, when datasets are stopped, and how they
are released.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import ConflictError, TransientError
from distcommit.core.interfaces.source import Planned, SourceState
from distcommit.core.records.log_records import SetWatermark
from distcommit.core.records.read_failure_records import ReadFailure, ReadFailures
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.run import RunResult
from distcommit.protocol.seal_decision import CommitPolicy, RetryPolicy
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, rebuild
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    STAGING,
    Machine,
    OddSource,
    Once,
    audit,
    begin_ingest,
    fails,
    go,
    ingest_all,
    source,
    states,
)

WORLD = World()
STOPPING = World(stop_after_failed_runs=3)
WHY = "SOURCE_FAILED: a partition cannot be read"


def at(**positions: int) -> Watermark:
    return Watermark({name.removeprefix("p"): position for name, position in positions.items()})


def half(a: int = 3, *, broken: bool = True, **more: int) -> ModelSource:
    """Build a source with dataset `a`, whose partition 0 is unreadable, and other datasets."""
    dataset = ModelDataset({"0": a, "1": a}, fails=frozenset("0") if broken else frozenset())
    return ModelSource({"a": dataset, **source(**more).datasets})


class InOneUnit(ModelSource):
    """A source that reads all partitions of a dataset in one work unit."""

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for planned in ModelSource.plan(self, owned, states):
            assert isinstance(planned, DatasetPlan)
            low = {p: at for unit in planned.work_units for p, at in unit.low.positions.items()}
            high = {p: at for unit in planned.work_units for p, at in unit.expected_high.positions.items()}
            unit = WorkUnit("", planned.dataset_urn, Watermark(low), Watermark(high), 1)
            yield structs.replace(planned, work_units=(unit,))


class WithoutEnds(ModelSource):
    """A source whose expected high watermarks are unknown at planning."""

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for planned in ModelSource.plan(self, owned, states):
            assert isinstance(planned, DatasetPlan)
            units = [structs.replace(unit, expected_high=Watermark({})) for unit in planned.work_units]
            yield structs.replace(planned, work_units=tuple(units))


def unread(machine: Machine, urn: str = "a", world: World = WORLD) -> ReadFailure | None:
    return states(world, machine)[urn].read_failure


def counted(machine: Machine, urn: str = "a", world: World = WORLD) -> int | None:
    failure = unread(machine, urn, world)
    return failure.failed_runs if failure else None


def unread_records(machine: Machine) -> list[ReadFailures]:
    log_records = [
        decode_segment(d, "").record for path, d in machine.paths("/job/store/log").items() if BUCKET_LOG in path
    ]
    return [record for record in log_records if isinstance(record, ReadFailures)]


def kinds(result: RunResult, urn: str = "a") -> list[str]:
    return [reason.kind for reason in result.reasons.entries if reason.subject == urn]


def exact(machine: Machine, records: int, world: World = WORLD) -> None:
    audit_result = audit(world, machine)
    assert (audit_result.exact, audit_result.records) == (True, records), audit_result


def test_one_failing_dataset_among_many_is_recorded_and_the_others_cost_nothing() -> None:
    machine = Machine()
    result = go(WORLD, machine, half(b=2, c=1))
    assert (result.totals.datasets_published, result.totals.datasets_failed) == (2, 1)
    failure = unread(machine)
    assert failure is not None
    assert (failure.failed_runs, failure.expected_high, failure.stopped, failure.outage) == (
        1,
        at(p0=3, p1=3),
        False,
        False,
    )
    assert failure.reason.startswith(WHY)
    assert (unread(machine, "b"), unread(machine, "c")) == (None, None)
    assert go(WORLD, machine, half(broken=False, b=2, c=1)).succeeded
    assert unread(machine) is None
    exact(machine, 9)


def test_all_read_failures_of_a_bucket_cost_one_record_and_successful_reads_cost_none() -> None:
    machine = Machine()
    broken = ModelSource({f"d{n}": ModelDataset({"0": 1}, fails=frozenset("0")) for n in range(50)})
    go(WORLD, machine, broken)
    assert [len(record.datasets) for record in unread_records(machine)] == [50]
    assert go(WORLD, machine, ModelSource({urn: ModelDataset({"0": 1}) for urn in broken.datasets})).succeeded
    assert len(unread_records(machine)) == 1
    assert {state.read_failure for state in states(WORLD, machine).values()} == {None}


def test_run_counts_one_failure_whatever_twins_its_drain_has() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, half())
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    drain_partition(settings, 0)
    drain_partition(settings, 0)
    assert (counted(machine), len(unread_records(machine))) == (1, 1)


def test_fenced_run_counts_no_failure() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, half())
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    begin_ingest(WORLD, machine, source(b=1))
    assert drain_partition(settings, 0).fenced
    assert unread_records(machine) == []


def test_dataset_whose_watermark_an_operator_sets_meanwhile_counts_no_failure() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, half())
    ingest_all(settings, tasks)
    run_alone(settings.store.bucket_log(0).settle(Once(SetWatermark("a", None, "person"))))
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    drain_partition(settings, 0)
    assert unread(machine) is None


@pytest.mark.parametrize("policy", list(CommitPolicy))
def test_dataset_without_a_known_end_counts_failures_and_stops_too(policy: CommitPolicy) -> None:
    world, machine = World(policy=policy, stop_after_failed_runs=2), Machine()
    broken = WithoutEnds({"a": ModelDataset({"0": 3}, fails=frozenset("0"))})
    assert [kinds(go(world, machine, broken)) for _ in range(3)] == [
        ["failed"],
        ["failed", "stopped"],
        ["skipped, stopped"],
    ]
    failure = unread(machine, world=world)
    assert failure is not None
    assert failure.expected_high == Watermark({})


def test_reason_of_a_partial_read_is_reported_behind_a_long_position() -> None:
    """With many partitions or remembered files the position is long, and the stored reason is truncated."""
    world, many = World(policy=CommitPolicy.PARTIAL), [f"partition-{n}" for n in range(60)]
    machine = Machine()
    one_unit = ModelDataset(dict.fromkeys(many, 2), bad={many[-1]: 1})
    result = go(world, machine, InOneUnit({"a": one_unit}))
    assert WHY in result.reasons.entries[0].text
    assert WHY in states(world, machine)["a"].done_partial_reason
    failure = unread(machine, world=world)
    assert failure is not None
    assert (failure.failed_runs, failure.outage) == (1, False)


def test_dataset_is_stopped_after_the_configured_runs_and_released_by_an_operator() -> None:
    machine, more = Machine(), iter(range(1, 20))
    broken = half(b=1)
    results = [go(STOPPING, machine, broken) for _ in range(5)]
    assert [kinds(result) for result in results] == [["failed"]] * 2 + [["failed", "stopped"]] + [
        ["skipped, stopped"]
    ] * 2
    reason = results[-1].reasons.entries[0].text
    assert reason.startswith("3 runs in a row could not read it")
    assert "`distcommit dataset release JOB.yaml a retry`" in reason
    assert WHY in reason
    assert results[-1].totals.datasets_planned == 0, "b has no new records, and a is not planned"
    row = next(row for row in read_status(STOPPING.store(machine)).datasets if row.dataset == "a")
    assert (row.status, row.failed_runs, row.reason.startswith(WHY)) == ("stopped", 3, True)
    operator_actions.retry(STOPPING.store(machine), "a", "person")
    assert go(STOPPING, machine, half(a=5, broken=False, b=1 + next(more))).succeeded
    assert unread(machine, world=STOPPING) is None
    exact(machine, 12, STOPPING)


def test_released_dataset_has_all_its_runs_again() -> None:
    machine = Machine()
    for _ in range(3):
        go(STOPPING, machine, half())
    assert operator_actions.retry_all(STOPPING.store(machine), "person").datasets == ["a"]
    assert counted(machine, world=STOPPING) == 0
    assert kinds(go(STOPPING, machine, half())) == ["failed"]
    assert counted(machine, world=STOPPING) == 1


def test_watermark_of_a_stopped_dataset_can_be_set_past_its_unreadable_records() -> None:
    machine = Machine()
    for _ in range(3):
        go(STOPPING, machine, half())
    store = STOPPING.store(machine)
    for act in (operator_actions.accept, operator_actions.abandon):
        with pytest.raises(ConflictError, match=r"found stopped.*release it with retry; or set its watermark"):
            act(store, "a", "person")
    operator_actions.set_watermark(store, "a", at(p0=3, p1=0), "person")
    assert unread(machine, world=STOPPING) is None
    assert go(STOPPING, machine, ModelSource({"a": ModelDataset({"0": 3, "1": 4}, bad={"0": 0})})).succeeded
    with pytest.raises(ConflictError, match="nothing: the dataset has no sequence"):
        operator_actions.accept(store, "a", "person")


def test_stopped_dataset_keeps_its_watermark_over_any_number_of_runs() -> None:
    machine = Machine()
    assert go(STOPPING, machine, half(a=2, broken=False)).succeeded
    for number in range(12):
        go(STOPPING, machine, half(a=5, b=number))
    assert STOPPING.watermarks(machine)["a"] == at(p0=2, p1=2)
    failure = unread(machine, world=STOPPING)
    assert failure is not None
    assert (failure.failed_runs, failure.stopped) == (3, True)
    operator_actions.retry(STOPPING.store(machine), "a", "person")
    assert go(STOPPING, machine, half(a=5, broken=False, b=11)).succeeded
    exact(machine, 21, STOPPING)


def test_run_that_reads_the_dataset_resets_its_failure_count() -> None:
    machine = Machine()
    for broken in (True, True, False, True, True):
        go(STOPPING, machine, half(a=4 + counted_runs(machine), broken=broken))
    assert counted(machine, world=STOPPING) == 2
    assert not states(STOPPING, machine)["a"].is_stopped


def counted_runs(machine: Machine) -> int:
    return STOPPING.store(machine).job_log().refresh().fence_epoch


@pytest.mark.parametrize("what", ["source", "opening", "staging", "ingest"])
def test_outage_counts_as_no_dataset_s_failed_run(what: str) -> None:
    def refuse(unit: WorkUnit) -> None:
        raise TransientError("no broker answers")

    def closed() -> None:
        raise ConnectionRefusedError("no broker answers")

    machine, data = Machine(), source(a=3)
    for _ in range(4):
        if what == "staging":
            machine.faults.append(fails(errno.ENOSPC, "create", f"{STAGING}/0"))
        if what == "ingest":
            settings, _ = begin_ingest(STOPPING, machine, data)
            record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
            drain_partition(settings, 0)
        else:
            odd = {"source": {"extracting": refuse}, "opening": {"opening": closed}}.get(what, {})
            assert kinds(go(STOPPING, machine, OddSource(data.datasets, **odd))) == ["failed"]  # type: ignore[arg-type]
        machine.faults.clear()
    failure = unread(machine, world=STOPPING)
    assert failure is not None
    assert (failure.failed_runs, failure.outage, failure.expected_high) == (0, True, at(p0=3))
    row = read_status(STOPPING.store(machine)).datasets[0]
    assert (row.status, row.outage, bool(row.reason)) == ("idle", True, True)
    assert go(STOPPING, machine, data).succeeded


def test_policy_successful_stops_a_dataset_whose_partition_is_unreadable_though_others_continue() -> None:
    world = World(policy=CommitPolicy.SUCCESSFUL, stop_after_failed_runs=3, retry_across_runs=RetryPolicy.ALWAYS)
    machine = Machine()
    results = [go(world, machine, half(a=n)) for n in (2, 4, 6, 8)]
    assert [kinds(result) for result in results] == [["partly failed"]] * 2 + [
        ["partly failed", "stopped"],
        ["skipped, stopped"],
    ]
    failure = unread(machine, world=world)
    assert failure is not None
    assert failure.expected_high == at(p0=2), "partition 1 is read as before"
    assert world.watermarks(machine)["a"] == at(p0=0, p1=6)
    operator_actions.retry(world.store(machine), "a", "person")
    assert go(world, machine, half(a=8, broken=False)).succeeded
    assert world.watermarks(machine)["a"] == at(p0=2, p1=8)
    assert go(world, machine, half(a=8, broken=False)).succeeded
    exact(machine, 16, world)


def test_policy_successful_does_not_add_up_failures_of_different_partitions() -> None:
    world = World(policy=CommitPolicy.SUCCESSFUL, stop_after_failed_runs=2)
    machine = Machine()
    for number, broken in enumerate("0101", 1):
        data = ModelSource({"a": ModelDataset({"0": number, "1": number}, fails=frozenset(broken))})
        assert "stopped" not in kinds(go(world, machine, data))
        assert counted(machine, world=world) == 1


def test_stopped_dataset_holds_back_a_job_that_publishes_all_or_nothing() -> None:
    world = World(job_level=True, stop_after_failed_runs=2)
    machine = Machine()
    for _ in range(3):
        result = go(world, machine, half(b=1))
        assert not result.decided
    assert kinds(result) == ["skipped, stopped"]
    operator_actions.retry(world.store(machine), "a", "person")
    assert go(world, machine, half(broken=False, b=1)).succeeded


# -- retries across runs


@dataclass(frozen=True, slots=True)
class Watching(ModelSource):
    """A source that records for which states it plans and what it plans."""

    seen: list[tuple[Watermark | None, Watermark | None, ReadFailure | None]] = field(default_factory=list)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        assert isinstance(states, SourceState)
        state = states.get("a")
        watermarks = (
            state.watermark if state else None,
            states.to_read_again("a"),
            state.read_failure if state else None,
        )
        self.seen.append(watermarks)
        yield from ModelSource.plan(self, owned, states)


def test_policy_of_the_dataset_decides_whether_a_failed_range_is_read_by_itself_first() -> None:
    world = World(policies=(("a", CommitPolicy.PARTIAL),), retry_across_runs=RetryPolicy.ON_PARTIAL)
    machine = Machine()
    nothing = ModelDataset({"0": 3}, fails=frozenset("0"))
    assert go(world, machine, ModelSource({"a": nothing, "b": nothing})).totals.datasets_failed == 2
    assert go(world, machine, source(a=9, b=9)).succeeded
    assert world.watermarks(machine) == {"a": at(p0=3), "b": at(p0=9)}


@pytest.mark.parametrize("policy", CommitPolicy)
@pytest.mark.parametrize("retry", RetryPolicy)
def test_failed_range_is_read_by_itself_or_with_all_new_records_over_three_runs(
    retry: RetryPolicy, policy: CommitPolicy
) -> None:
    world = World(policy=policy, retry_across_runs=retry)
    by_itself = {"always": True, "never": False}.get(retry, (retry == "on_full") == (policy is CommitPolicy.FULL))
    machine = Machine()
    assert go(world, machine, source(a=1)).succeeded
    broken = ModelSource({"a": ModelDataset({"0": 3}, fails=frozenset("0"))})
    assert kinds(go(world, machine, broken)) == ["failed"]
    assert world.watermarks(machine)["a"] == at(p0=1)
    grown = Watching(source(a=9).datasets)
    assert go(world, machine, grown).succeeded
    first_plan = grown.seen[0]
    assert first_plan[:2] == (at(p0=1), at(p0=3) if by_itself else None)
    assert first_plan[2] is not None
    assert (first_plan[2].failed_runs, first_plan[2].expected_high, first_plan[2].reason.startswith(WHY)) == (
        1,
        at(p0=3),
        True,
    )
    assert world.watermarks(machine)["a"] == (at(p0=3) if by_itself else at(p0=9))
    assert go(world, machine, source(a=9)).succeeded
    assert world.watermarks(machine)["a"] == at(p0=9)
    exact(machine, 9, world)


def test_retry_begins_at_the_current_watermark_never_at_its_old_low() -> None:
    world = World(retry_across_runs=RetryPolicy.ALWAYS)
    machine = Machine()
    go(world, machine, ModelSource({"a": ModelDataset({"0": 6}, fails=frozenset("0"))}))
    operator_actions.set_watermark(world.store(machine), "a", at(p0=4), "person")
    assert go(world, machine, source(a=9)).succeeded
    assert audit(world, machine).records == 5
    assert world.watermarks(machine)["a"] == at(p0=9), "no range is left after the operator set the watermark"


def test_dataset_that_was_never_read_is_planned_up_to_its_first_end() -> None:
    world = World(retry_across_runs=RetryPolicy.ALWAYS)
    machine = Machine()
    go(world, machine, half(a=2))
    assert go(world, machine, half(a=7, broken=False)).succeeded
    assert world.watermarks(machine)["a"] == at(p0=2, p1=2)
    assert go(world, machine, half(a=7, broken=False)).succeeded
    exact(machine, 14, world)


def test_rebucketing_carries_read_failures_over() -> None:
    machine, world = Machine(), World(buckets=2, resized=True, stop_after_failed_runs=1)
    go(world, machine, half(b=1, c=1))
    before = unread(machine, world=world)
    assert before is not None
    assert before.stopped
    rebucket(world.store(machine), Move(3), "moves", lambda step: None)
    assert unread(machine, world=world) == before
    assert kinds(go(world, machine, half(broken=False, b=1, c=1))) == ["skipped, stopped"]
    operator_actions.retry(world.store(machine), "a", "person")
    assert go(world, machine, half(broken=False, b=1, c=1)).succeeded


def test_rebuild_resets_read_failures() -> None:
    machine = Machine()
    assert go(STOPPING, machine, half(a=1, broken=False)).succeeded
    for _ in range(3):
        go(STOPPING, machine, half())
    lose_the_store(machine, buckets=1)
    rebuild(STOPPING, machine)
    assert unread(machine, world=STOPPING) is None
    assert go(STOPPING, machine, half(broken=False)).succeeded
    exact(machine, 6, STOPPING)


def test_read_failure_that_the_log_cannot_record_is_reported_by_the_run_and_nothing_is_lost() -> None:
    machine = Machine()
    WORLD.store(machine)
    settings, tasks = begin_ingest(WORLD, machine, half())
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    machine.faults.append(fails(errno.ENOSPC, "create", BUCKET_LOG))
    report = drain_partition(settings, 0)
    assert [(reason.subject, reason.kind) for reason in report.reasons] == [("a", "failed")]
    machine.faults.clear()
    assert unread_records(machine) == []
    assert go(WORLD, machine, half(broken=False)).succeeded
    exact(machine, 6)


def test_outage_stops_no_dataset_whatever_was_counted_before() -> None:
    machine, data = Machine(), half()
    for _ in range(3):
        go(WORLD, machine, data)

    def refuse(unit: WorkUnit) -> None:
        raise TransientError("no broker answers")

    go(World(stop_after_failed_runs=2), machine, OddSource(data.datasets, extracting=refuse))
    failure = unread(machine)
    assert failure is not None
    assert (failure.failed_runs, failure.stopped) == (3, False)
