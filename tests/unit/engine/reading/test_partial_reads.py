"""Extractors that fail half-way, under each policy: what is published, what the next run reads, and which
files remain.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace

import pytest

from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import LostTailError
from distcommit.core.records.log_records import Done, Intent
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, WorkUnit
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.run import RunResult
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import model_flow
from tests.simulation.world import World, left_in_staging
from tests.unit.engine.committing.situations import check_recovery, rows
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    STAGING,
    Machine,
    OddSource,
    audit,
    begin_ingest,
    dies,
    fails,
    go,
    ingest_all,
    published,
    reading,
    source,
    statuses,
)

WORLD = World(policy=CommitPolicy.PARTIAL)
GOOD = source(a=[8, 4], b=2)


def stumbling(units: int = 2, **bad: int) -> ModelSource:
    """Build a source whose dataset `a` can't be read at some offsets, given by partition: `p0=5`."""
    offsets = {name.removeprefix("p"): offset for name, offset in bad.items()}
    return ModelSource({**GOOD.datasets, "a": ModelDataset({"0": 8, "1": 4}, units=units, bad=offsets)})


FULL, SUCCESSFUL, PARTIAL = CommitPolicy
NOWHERE: Mapping[str, int] = {}


@pytest.mark.parametrize(
    ("bad", "policy", "reached"),
    [
        ({"p0": 5}, FULL, NOWHERE),
        ({"p0": 5}, SUCCESSFUL, {"0": 4, "1": 4}),
        ({"p0": 5}, PARTIAL, {"0": 5, "1": 4}),
        ({"p0": 2}, FULL, NOWHERE),
        ({"p0": 2}, SUCCESSFUL, {"0": 0, "1": 4}),
        ({"p0": 2}, PARTIAL, {"0": 2, "1": 4}),  # later records of that partition wait
        ({"p0": 0}, FULL, NOWHERE),
        ({"p0": 0}, SUCCESSFUL, {"0": 0, "1": 4}),
        ({"p0": 0}, PARTIAL, {"0": 0, "1": 4}),  # no record was read before this one
        ({"p0": 7, "p1": 3}, FULL, NOWHERE),
        ({"p0": 7, "p1": 3}, SUCCESSFUL, {"0": 4, "1": 2}),
        ({"p0": 7, "p1": 3}, PARTIAL, {"0": 7, "1": 3}),
        ({"p0": 0, "p1": 0}, FULL, NOWHERE),
        ({"p0": 0, "p1": 0}, SUCCESSFUL, NOWHERE),
        ({"p0": 0, "p1": 0}, PARTIAL, NOWHERE),
    ],
)
@pytest.mark.parametrize("flow", [World().flow, model_flow])
def test_faulty_extractor_publishes_what_its_policy_allows(
    bad: dict[str, int], policy: CommitPolicy, reached: Mapping[str, int], flow: object
) -> None:
    world, machine = World(policy=policy, flow=flow, task_attempts=2), Machine()  # type: ignore[arg-type]
    result = go(world, machine, stumbling(**bad))
    assert not result.succeeded
    assert world.watermarks(machine).get("a") == (Watermark(dict(reached)) if reached else None)
    assert world.watermarks(machine)["b"] == Watermark({"0": 2}), "other datasets are unaffected"
    assert audit(world, machine).exact
    kind = "partly failed" if reached else "failed"
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("a", kind)]
    assert not reached or left_in_staging(machine) == []
    check_recovery(machine, GOOD, world)


def test_offset_and_reason_of_a_read_failure_are_reported_and_stored() -> None:
    machine = Machine()
    [reason] = go(WORLD, machine, stumbling(p0=5)).reasons.entries
    expected = f"is read up to {Watermark({'0': 5})} only: SOURCE_FAILED: a partition cannot be read"
    assert expected in reason.text
    [state] = [s for s in WORLD.store(machine).bucket_log(0).refresh().datasets.values() if s.dataset_urn == "a"]
    assert expected in state.done_partial_reason
    last = read_status(WORLD.store(machine)).last_run
    assert last is not None
    [stored_reason] = last.reasons.entries
    assert (stored_reason.subject, stored_reason.kind, expected in stored_reason.text) == ("a", "partly failed", True)


def test_dataset_blocked_at_one_record_for_many_runs_resumes_at_its_watermark() -> None:
    machine = Machine()
    for records in (2, 4, 6):
        partitions = {"0": records, "1": 4}
        go(WORLD, machine, ModelSource({"a": ModelDataset(partitions, bad={"0": 1}), "b": ModelDataset({"0": 2})}))
        assert WORLD.watermarks(machine)["a"] == Watermark({"0": 1, "1": 4})
    assert audit(WORLD, machine).exact
    check_recovery(machine, GOOD, WORLD)


def run_with(*bad: int, world: World) -> tuple[Machine, RunResult]:
    """Run the job so that each attempt at its only work unit fails at the next of these offsets."""
    remaining, now = list(bad), {"0": -1}

    def stumble(unit: WorkUnit) -> None:
        now["0"] = remaining.pop(0)

    machine = Machine()
    result = go(world, machine, OddSource({"a": ModelDataset({"0": 8}, bad=now)}, extracting=stumble))
    assert audit(world, machine).exact
    assert left_in_staging(machine) == [], "aborted attempts are swept"
    return machine, result


@pytest.mark.parametrize(("bad", "reached"), [((3, 6, 2), 6), ((6, 3, 2), 6), ((2, 3, 6), 6), ((5, 7, -1), 8)])
def test_attempt_that_read_most_wins_and_a_success_beats_all(bad: tuple[int, ...], reached: int) -> None:
    machine, result = run_with(*bad, world=World(policy=PARTIAL, task_attempts=3))
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": reached})}
    assert result.succeeded == (reached == 8)
    assert result.totals.records_published == reached
    check_recovery(machine, source(a=8), WORLD)


def test_partial_attempt_is_chosen_only_after_ingest_and_a_repeated_task_reads_the_work_unit_again() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, stumbling(p0=5))
    ingest_all(settings, tasks)
    assert drain_partition(settings, 0).counts.datasets_published == 1
    assert statuses(WORLD, machine) == {"b": "idle"}
    ingest_partition(reading(settings, GOOD), 0)
    assert WORLD.watermarks(machine)["a"] == Watermark({"0": 8, "1": 4})
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    assert drain_partition(settings, 0).counts.datasets_partial == 0


def test_success_before_the_end_of_ingest_wins_and_a_success_after_the_seal_does_not() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, stumbling(p0=5))
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    assert drain_partition(settings, 0).counts.datasets_partial == 1
    ingest_partition(reading(settings, GOOD), 0)
    assert WORLD.watermarks(machine)["a"] == Watermark({"0": 5, "1": 4})
    assert audit(WORLD, machine).exact
    check_recovery(machine, GOOD, WORLD)


def test_dataset_has_the_policy_of_the_first_pattern_that_matches_its_whole_name() -> None:
    machine, bad = Machine(), {name: ModelDataset({"0": 4, "1": 4}, bad={"0": 3}) for name in ("a", "b", "bb", "c")}
    settings, tasks = begin_ingest(World(), machine, ModelSource(bad))
    settings = replace(settings, policies=(("a|b", PARTIAL), (".*b", SUCCESSFUL), ("a", FULL)))
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    drain_partition(settings, 0)
    assert {urn: dict(watermark.positions) for urn, watermark in World().watermarks(machine).items()} == {
        "a": {"0": 3, "1": 4},
        "b": {"0": 3, "1": 4},
        "bb": {"0": 0, "1": 4},
    }
    outcomes = {state.dataset_urn: state.outcome for state in rows(settings) if "0" in state.low.positions}
    assert {urn for urn, outcome in outcomes.items() if outcome is TaskOutcome.PARTIAL} == {"a", "b"}


def test_prefix_that_could_not_be_synced_is_not_published() -> None:
    machine = Machine()
    machine.faults.append(fails(errno.EIO, "syncfs", STAGING))
    settings, _ = begin_ingest(WORLD, machine, stumbling(p0=5))
    ingest_partition(settings, 0)
    assert {state.outcome for state in rows(settings)} == {TaskOutcome.FAILED}
    machine.faults.clear()
    check_recovery(machine, GOOD, WORLD)


def test_audit_reports_a_published_prefix_that_no_log_names() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    machine.faults.append(dies("rename", BUCKET_LOG, record=Done, machine=machine))
    with pytest.raises(Crashed):
        go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 8}, bad={"0": 5})}))
    machine.restart()
    assert len(published(machine)) == 2
    folder = WORLD.store(machine).bucket_log(0).folder
    newest = max(path for path in machine.paths(folder) if path.endswith(".seg"))
    assert isinstance(decode_segment(machine.paths(folder)[newest], newest).record, Intent)
    machine.unlink(newest)
    result = go(WORLD, machine, source(a=8))
    assert LostTailError.id in {reason.kind for reason in result.reasons.entries}
    assert result.totals.datasets_published == 0
