"""Release plans predict the effect of the release."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from distcommit.app.admin.abandon_datasets import Abandoned, abandon_all
from distcommit.app.inspection.dry_runs.release_plan import ReleasePlan, ReleaseRow, plan_release
from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import StepRow, read_steps
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.engine.driver.run import run
from distcommit.stores.operator import operator_actions
from distcommit.stores.operator.operator_actions import Release
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import STAGING, Machine, dies, go, launch, source, statuses, with_folders


def quarantined(*, lost: bool) -> tuple[Machine, ModelSource]:
    """Publish b by half and quarantine it; if `lost`, delete its other file first."""
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
def test_retry_of_a_lost_file_quarantines_again_and_abandon_reads_its_records_again(dataset: str | None) -> None:
    machine, data = quarantined(lost=True)
    before = machine.paths("/job")
    (row,) = planned(machine, Release.RETRY, dataset)
    assert (row.changes_dataset, row.effect[:33]) == (True, "the next run quarantines it again")
    operator_actions.retry(WORLD.store(machine), "b", "ann")
    go(WORLD, machine, data)
    assert statuses(WORLD, machine) == {"b": "quarantined"}
    (row,) = planned(machine, Release.ABANDON, dataset)
    assert (row.changes_dataset, row.records) == (True, 3)
    assert row.effect == "1 of 2 steps are taken back, and the next run reads its records again"
    assert len(before) > 0
    operator_actions.abandon(WORLD.store(machine), "b", "ann")
    assert go(WORLD, machine, data).succeeded
    assert WORLD.violation(machine, data, {}) == ""


def test_retry_executes_the_missing_steps_and_abandon_without_a_dataset_leaves_a_retryable_sequence_alone() -> None:
    machine, data = quarantined(lost=False)
    before = machine.paths("/job")
    (row,) = planned(machine, Release.ABANDON, None)
    assert (row.changes_dataset, row.effect.partition(":")[0]) == (False, "left alone")
    assert planned(machine, Release.ABANDON)[0].changes_dataset
    (row,) = planned(machine, Release.ACCEPT)
    assert row.effect == "it counts as done: what 1 of 2 steps had to publish is lost"
    (row,) = planned(machine, Release.RETRY)
    assert row.effect == "the next run executes the missing steps: 1 of 2 are done"
    assert machine.paths("/job") == before, "planning a release must not change a file"
    operator_actions.retry(WORLD.store(machine), "b", "ann")
    assert go(WORLD, machine, data).succeeded
    (row,) = planned(machine, Release.RETRY)
    assert (row.changes_dataset, row.effect) == (False, "refused: it is idle")
    assert planned(machine, Release.RETRY, None) == []


@pytest.mark.parametrize("dataset", ["b", None])
def test_release_plan_refuses_to_abandon_a_sequence_with_a_lasting_step(dataset: str | None) -> None:
    machine, _ = quarantined(lost=True)
    store = WORLD.store(machine)
    steps = read_steps(store, StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id), dataset)
    (sequence,) = steps.sequences
    steps = replace(
        steps, sequences=[replace(sequence, steps=[*sequence.steps, StepRow("own", "", "DONE", is_permanent=True)])]
    )
    (row,) = plan_release(read_status(store), steps, Release.ABANDON, dataset).rows
    assert (row.changes_dataset, row.effect.partition(":")[0]) == (False, "refused")


@pytest.mark.parametrize("error", [ConflictError("its sink can't take it back", dataset="a"), OSError("can't take it")])
def test_dataset_that_refuses_to_be_abandoned_is_reported_and_the_others_are_abandoned(error: Exception) -> None:
    rows = [ReleaseRow(urn, "quarantined", 1, "", urn != "left alone") for urn in ("a", "b", "c", "left alone")]
    abandoned: list[str] = []

    def abandon(urn: str) -> None:
        abandoned.append(urn)
        if urn == "a":
            raise error

    with pytest.raises(type(error), match="can't take it"):
        abandon_all(ReleasePlan("job", Release.ABANDON, rows, {}), abandon)
    assert abandoned == ["a", "b", "c"]
    remaining_plan = ReleasePlan("job", Release.ABANDON, rows[1:], {"bucket 1": "torn"})
    assert abandon_all(remaining_plan, abandon) == Abandoned(["b", "c"], {"bucket 1": "torn"})
