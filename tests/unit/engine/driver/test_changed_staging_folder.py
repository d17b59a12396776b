"""A different staging folder than before, for example where a disk is not mounted for one run."""

from __future__ import annotations

import pytest

from distcommit.app.admin.rebuild_store import accept_store, stored_states
from distcommit.core.errors import StaleStoreError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.stores.logs.fencing import is_other_staging
from tests.simulation.programs.parts import SOURCE, files_below, half_done, replace_files
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import Machine

WORLD = World(buckets=2)


def _statuses(machine: Machine) -> set[DatasetStatus]:
    return {state.status for state in stored_states(WORLD.store(machine)).values()}


def _torn(machine: Machine) -> None:
    for bucket in range(2):
        folder = WORLD.store(machine).bucket_log(bucket).folder
        replace_files(machine, folder, dict.fromkeys(files_below(machine, folder), b"{"))


def test_unclaimed_staging_folder_is_rejected_while_a_sequence_is_pending() -> None:
    machine = Machine()
    half_done(machine, WORLD)
    assert DatasetStatus.PENDING in _statuses(machine)
    staged = files_below(machine, ROOTS.staging)
    replace_files(machine, ROOTS.staging, {})
    for _ in range(2):  # the first one has not claimed it either
        with pytest.raises(
            StaleStoreError, match=r"staging folder is not the one that contains .*rebuild --keep-watermarks"
        ):
            WORLD.run(machine, SOURCE)
    assert DatasetStatus.QUARANTINED not in _statuses(machine)
    replace_files(machine, ROOTS.staging, staged)
    assert WORLD.run(machine, SOURCE).succeeded


def test_lost_staging_folder_is_given_up_once_an_operator_confirms() -> None:
    machine = Machine()
    half_done(machine, WORLD)
    replace_files(machine, ROOTS.staging, {})
    assert accept_store(WORLD.store(machine), "kept", "person").written
    assert not WORLD.run(machine, SOURCE).succeeded
    assert DatasetStatus.QUARANTINED in _statuses(machine)


def test_staging_folder_may_be_emptied_while_nothing_is_pending() -> None:
    machine = Machine()
    assert WORLD.run(machine, SOURCE).succeeded
    replace_files(machine, ROOTS.staging, {})
    assert WORLD.run(machine, SOURCE).succeeded


def test_log_that_cannot_be_read_counts_as_pending() -> None:
    machine = Machine()
    assert WORLD.run(machine, SOURCE).succeeded
    replace_files(machine, ROOTS.staging, {})
    _torn(machine)
    assert is_other_staging(WORLD.store(machine))
