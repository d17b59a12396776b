"""A dry run of the sweep lists exactly the files that the next run deletes."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

import pytest

from distcommit.app.inspection.dry_runs.sweep_plan import show_sweeps
from distcommit.core.errors import DistcommitError
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import recover
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.fs.dry_run_file_system import DryRunDeletes
from distcommit.protocol.paths.store import segment_name
from distcommit.stores.history.retention import Retention
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import NOTHING, Machine, OddSource, dies, go, launch, source

KEPT_SNAPSHOTS = 2  # the number that runs of the simulated world keep
KEPT = Retention(runs=2, tables=1)
SMALL = replace(WORLD, kept=KEPT)


def test_orphaned_files_of_a_killed_run_and_expired_tables_are_listed_and_then_swept() -> None:
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
    shown = show_sweeps(SMALL.store(machine), KEPT, KEPT_SNAPSHOTS)
    assert machine.paths("/job") == before, "a dry run must not delete a file"
    assert shown.counts["staged files"] > 0
    assert shown.counts["tables and records of runs"] > 0
    assert (sum(shown.counts.values()), shown.files_count, shown.unreadable) == (len(shown.files),) * 2 + ({},)
    settings = SMALL.begin(machine, NOTHING)
    with recorded_run(settings, "recover", "ann") as recorder:
        recover(launch, settings, recorder)
    after = machine.paths("/job")
    deleted = {path for path in before if path not in after}
    first_kept = SMALL.store(machine).job_log().refresh().previous_checkpoint
    superseded_segments = {f"/job/store/log/job/{segment_name(number)}" for number in range(1, first_kept)}
    assert set(shown.files) == deleted - superseded_segments, (
        "the list must cover all deletions except superseded segments of the job log"
    )
    assert superseded_segments <= deleted
    assert not set(show_sweeps(SMALL.store(machine), KEPT, KEPT_SNAPSHOTS).files) & set(shown.files)


def test_sweep_list_of_a_clean_store_is_empty() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    assert show_sweeps(WORLD.store(machine), WORLD.kept, KEPT_SNAPSHOTS + 1).files == []


def test_sweep_list_excludes_files_of_sealed_sequences() -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, source(a=3))
    machine.restart()
    assert show_sweeps(WORLD.store(machine), WORLD.kept, KEPT_SNAPSHOTS).files == []


def test_sweep_dry_run_refuses_any_operation_but_deletes() -> None:
    dry_run = DryRunDeletes(WORLD.store(Machine()).fs)
    with pytest.raises(DistcommitError, match="a dry run supports only deletions"):
        dry_run.put_if_absent("/store/x", b"")
    with pytest.raises(AttributeError):
        dry_run.create("/store/x")
