"""Replay plans predict the effect of the replay."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

from distcommit.app.inspection.dry_runs.replay_plan import Replay, ReplayPlan, plan_replay
from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import read_steps
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import RecoverResult, recover
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.run_settings import step_context
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import (
    NOTHING,
    STAGING,
    Machine,
    OddSource,
    dies,
    go,
    launch,
    source,
    statuses,
    with_folders,
)


def planned(machine: Machine, world: World = WORLD) -> ReplayPlan:
    store = world.store(machine)
    context = StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id)
    return plan_replay(read_status(store), read_steps(store, context))


def recovered(machine: Machine, world: World = WORLD, only: str = "") -> RecoverResult:
    settings = replace(world.begin(machine, NOTHING), replays_only=only)
    assert step_context(settings).fs is not None
    with recorded_run(settings, "recover", "ann") as recorder:
        return recover(launch, settings, recorder)


def half_done(world: World = WORLD) -> Machine:
    """Seal b and publish one of its two files."""
    machine, data = with_folders(Machine(), "a", "b"), source(a=3, b=[2, 1])
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        go(world, machine, data)
    machine.restart()
    return machine


def test_replay_plan_closes_a_half_published_sequence_by_executing_its_missing_step() -> None:
    machine = half_done()
    plan = planned(machine)
    before = machine.paths("/job")
    pending = {row.dataset: (row.outcome, row.steps_to_execute, row.steps_done) for row in plan.rows}
    assert pending["b"] == (Replay.CLOSES, 1, 1)
    assert planned(machine) == plan
    assert machine.paths("/job") == before, "planning a replay must not change a file"
    result = recovered(machine)
    assert result.totals.sequences_replayed == plan.counts[Replay.CLOSES]
    assert result.totals.steps_executed == sum(row.steps_to_execute for row in plan.rows) == 1
    assert planned(machine).rows == []


def test_replay_plan_announces_the_quarantine_of_a_lost_sequence() -> None:
    machine = half_done()
    for path in machine.paths(STAGING):
        machine.remove(path)
    rows = {row.dataset: row for row in planned(machine).rows}
    assert rows["b"].outcome is Replay.QUARANTINES
    assert rows["b"].reason.startswith("expected ")
    recovered(machine)
    assert statuses(WORLD, machine)["b"] == "quarantined"
    assert {row.dataset: row.outcome for row in planned(machine).rows}["b"] is Replay.LEAVES


def test_replay_plan_announces_the_drop_of_a_held_sequence() -> None:
    machine, world = Machine(), World(job_level=True)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    go(world, machine, OddSource(source(a=3, b=1).datasets, extracting=extracting))
    assert [(row.dataset, row.outcome) for row in planned(machine).rows] == [("a", Replay.DROPS)]
    result = recovered(machine, world)
    assert (result.totals.sequences_dropped, result.totals.sequences_replayed) == (1, 0)


def test_single_dataset_is_recovered_alone_and_the_others_stay_pending_for_the_next_run() -> None:
    machine, once = Machine(), World(min_interval_s=1_000_000)
    data = source(a=2, b=2)
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/"))
    with suppress(BaseException):
        go(once, machine, data)
    machine.restart()
    assert {row.dataset for row in planned(machine).rows} == {"a", "b"}
    result = recovered(machine, only="b")
    assert (result.succeeded, result.totals.sequences_replayed) == (True, 1)
    assert statuses(WORLD, machine) == {"a": "pending", "b": "idle"}
    (pending,) = read_status(WORLD.store(machine)).datasets[:1]
    assert (pending.dataset, pending.failed_runs, pending.reason) == ("a", 0, "")
    assert go(WORLD, machine, data).succeeded
    assert WORLD.violation(machine, data, {}) == ""
