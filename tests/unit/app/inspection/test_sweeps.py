"""What the next run would sweep is what it then sweeps."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

import pytest

from distcommit.app.inspection.sweeps import show_sweeps
from distcommit.core.errors import DistcommitError
from distcommit.core.work import WorkUnit
from distcommit.engine.driver.guarded_observer import recorded_run
from distcommit.engine.driver.run import recover
from distcommit.fs.dry_run import DryRunDeletes
from distcommit.protocol.paths.store import segment_name
from distcommit.stores.history.retention import Retention
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import NOTHING, Machine, OddSource, dies, go, launch, source

KEPT_CUTS = 2  # as runs of the simulated world keep
KEPT = Retention(runs=2, tables=1)
SMALL = replace(WORLD, kept=KEPT)


def test_what_a_run_has_left_that_died_and_what_is_kept_no_more_is_shown_and_then_swept() -> None:
    machine = Machine()
    for number in range(1, 5):
        go(SMALL, machine, source(a=number))
    data = source(a=9, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    machine.faults.append(dies("create", "/task_states/"))
    with suppress(BaseException):
        go(SMALL, machine, OddSource(data.datasets, extracting=extracting))
    machine.restart()
    before = machine.paths("/job")
    shown = show_sweeps(SMALL.store(machine), KEPT, KEPT_CUTS)
    assert machine.paths("/job") == before, "nothing was deleted"
    assert shown.counts["staged files"] > 0
    assert shown.counts["tables and records of runs"] > 0
    assert (sum(shown.counts.values()), shown.files_count, shown.unreadable) == (len(shown.files),) * 2 + ({},)
    settings = SMALL.begin(machine, NOTHING)
    with recorded_run(settings, "recover", "ann") as told:
        recover(launch, settings, told)
    after = machine.paths("/job")
    gone = {path for path in before if path not in after}
    kept_from = SMALL.store(machine).job_log().refresh().previous_checkpoint
    below = {f"/job/store/log/job/{segment_name(number)}" for number in range(1, kept_from)}
    assert set(shown.files) == gone - below, "but for what is below a checkpoint of its own"
    assert below <= gone
    assert not set(show_sweeps(SMALL.store(machine), KEPT, KEPT_CUTS).files) & set(shown.files)


def test_nothing_is_shown_where_there_is_nothing_to_sweep() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    assert show_sweeps(WORLD.store(machine), WORLD.kept, KEPT_CUTS + 1).files == []


def test_of_what_is_sealed_and_not_closed_nothing_is_shown() -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, source(a=3))
    machine.restart()
    assert show_sweeps(WORLD.store(machine), WORLD.kept, KEPT_CUTS).files == []


def test_a_sweep_that_would_do_anything_else_is_told() -> None:
    noting = DryRunDeletes(WORLD.store(Machine()).fs)
    with pytest.raises(DistcommitError, match="a dry run supports only deletions"):
        noting.put_if_absent("/store/x", b"")
    with pytest.raises(AttributeError):
        noting.create("/store/x")
