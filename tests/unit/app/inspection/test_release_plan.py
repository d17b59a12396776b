"""What a release is said to do to a dataset is what it then does."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from distcommit.app.admin.releases import Abandoned, abandon_each
from distcommit.app.inspection.release_plan import ReleasePlan, ReleaseRow, plan_release
from distcommit.app.inspection.status import read_status
from distcommit.app.inspection.steps import StepRow, read_steps
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.steps import StepContext
from distcommit.engine.driver.run import run
from distcommit.stores.operator import operator_actions
from distcommit.stores.operator.operator_actions import Release
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import STAGING, Machine, dies, go, launch, source, statuses, with_folders


def quarantined(*, lost: bool) -> tuple[Machine, ModelSource]:
    """b was half published; then its other file was lost, or somebody quarantined it."""
    machine, data = with_folders(Machine(), "b"), source(b=[2, 1])
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, data))
    machine.restart()
    for path in machine.paths(STAGING) if lost else ():
        machine.remove(path)
    operator_actions.quarantine(WORLD.store(machine), "b", "ann")
    return machine, data


def planned(machine: Machine, how: Release, dataset: str | None = "b") -> list[ReleaseRow]:
    store = WORLD.store(machine)
    context = StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id)
    return plan_release(read_status(store), read_steps(store, context, dataset), how, dataset).rows


@pytest.mark.parametrize("dataset", ["b", None])
def test_of_what_is_lost_retry_quarantines_again_and_abandon_reads_it_again(dataset: str | None) -> None:
    machine, data = quarantined(lost=True)
    before = machine.paths("/job")
    (row,) = planned(machine, Release.RETRY, dataset)
    assert (row.acts, row.does[:33]) == (True, "the next run quarantines it again")
    operator_actions.retry(WORLD.store(machine), "b", "ann")
    go(WORLD, machine, data)
    assert statuses(WORLD, machine) == {"b": "quarantined"}
    (row,) = planned(machine, Release.ABANDON, dataset)
    assert (row.acts, row.records) == (True, 3)
    assert row.does == "1 of 2 steps are taken back, and the next run reads its records again"
    assert len(before) > 0
    operator_actions.abandon(WORLD.store(machine), "b", "ann")
    assert go(WORLD, machine, data).succeeded
    assert WORLD.violation(machine, data, {}) == ""


def test_of_what_is_still_there_retry_executes_what_is_missing_and_not_all_is_abandoned_by_all() -> None:
    machine, data = quarantined(lost=False)
    before = machine.paths("/job")
    (row,) = planned(machine, Release.ABANDON, None)
    assert (row.acts, row.does.partition(":")[0]) == (False, "left alone")
    assert planned(machine, Release.ABANDON)[0].acts
    (row,) = planned(machine, Release.ACCEPT)
    assert row.does == "it counts as done: what 1 of 2 steps had to publish is lost"
    (row,) = planned(machine, Release.RETRY)
    assert row.does == "the next run executes the missing steps: 1 of 2 are done"
    assert machine.paths("/job") == before, "nothing was changed"
    operator_actions.retry(WORLD.store(machine), "b", "ann")
    assert go(WORLD, machine, data).succeeded
    (row,) = planned(machine, Release.RETRY)
    assert (row.acts, row.does) == (False, "refused: it is idle")
    assert planned(machine, Release.RETRY, None) == []


@pytest.mark.parametrize("dataset", ["b", None])
def test_what_can_not_be_abandoned_is_said_to_be_refused(dataset: str | None) -> None:
    machine, _ = quarantined(lost=True)
    store = WORLD.store(machine)
    steps = read_steps(store, StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id), dataset)
    (mine,) = steps.sequences
    steps = replace(steps, sequences=[replace(mine, steps=[*mine.steps, StepRow("own", "", "DONE", lasts=True)])])
    (row,) = plan_release(read_status(store), steps, Release.ABANDON, dataset).rows
    assert (row.acts, row.does.partition(":")[0]) == (False, "refused")


@pytest.mark.parametrize("error", [ConflictError("its sink can't take it back", dataset="a"), OSError("can't take it")])
def test_one_that_refuses_to_be_abandoned_keeps_no_other_from_it_and_is_told(error: Exception) -> None:
    rows = [ReleaseRow(urn, "quarantined", 1, "", urn != "left alone") for urn in ("a", "b", "c", "left alone")]
    asked: list[str] = []

    def abandon(urn: str) -> None:
        asked.append(urn)
        if urn == "a":
            raise error

    with pytest.raises(type(error), match="can't take it"):
        abandon_each(ReleasePlan("job", Release.ABANDON, rows, {}), abandon)
    assert asked == ["a", "b", "c"]
    rest = ReleasePlan("job", Release.ABANDON, rows[1:], {"bucket 1": "torn"})
    assert abandon_each(rest, abandon) == Abandoned(["b", "c"], {"bucket 1": "torn"})
