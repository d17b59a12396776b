"""A damaged file that was set aside and never rewritten is reported."""

from __future__ import annotations

import pytest

from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.stores.logs.fencing import take_ownership_of_folders
from distcommit.stores.state.damaged_files import is_only_set_aside, owner_path, record_restored, set_file_aside
from distcommit.stores.state.recorded_fixed_settings import read_settings, record_settings, replace_unreadable_settings
from tests.simulation.programs.damaged_files import DAMAGED_FILES
from tests.simulation.programs.parts import Program, new_machine
from tests.simulation.world import ROOTS, World

RUN_ID = "20260101T000000-0123456789ab"
PINNED = FixedSettings({"source.type": FixedSetting("kafka")})


@pytest.mark.parametrize("root", [ROOTS.output, ROOTS.staging])
def test_claim_that_was_set_aside_is_reported_until_it_is_restored(root: str) -> None:
    store = World().store(new_machine())
    take_ownership_of_folders(store)
    path = owner_path(root)
    assert not is_only_set_aside(store.fs, ROOTS, path)
    set_file_aside(store.fs, ROOTS, path, RUN_ID)
    assert is_only_set_aside(store.fs, ROOTS, path)
    take_ownership_of_folders(store)
    assert not is_only_set_aside(store.fs, ROOTS, path)
    record_restored(store.fs, ROOTS, path)
    store.fs.delete(path)
    assert not is_only_set_aside(store.fs, ROOTS, path), "a claim deleted later must not count as set aside"


def test_claim_restored_by_a_second_repair_is_recorded_beside_the_copy_of_the_first() -> None:
    """The first repair died after it had set the claim aside. The second one has another run id and no copy."""
    machine = DAMAGED_FILES[1].find()
    store = World(buckets=2).store(machine)
    path = owner_path(ROOTS.staging)
    set_file_aside(store.fs, ROOTS, path, RUN_ID)
    DAMAGED_FILES[1].act(machine)
    assert store.fs.status(path) is not None
    store.fs.delete(path)
    assert not is_only_set_aside(store.fs, ROOTS, path)


def test_claims_of_both_folders_are_distinguished() -> None:
    store = World().store(new_machine())
    take_ownership_of_folders(store)
    store.fs.delete(owner_path(ROOTS.output))
    set_file_aside(store.fs, ROOTS, owner_path(ROOTS.staging), RUN_ID)
    assert not is_only_set_aside(store.fs, ROOTS, owner_path(ROOTS.output))


def test_settings_are_recorded_above_the_damaged_document_before_it_is_set_aside() -> None:
    store = World().store(new_machine())
    record_settings(store, PINNED)
    damaged = replace_unreadable_settings(store, PINNED)
    assert store.fs.status(damaged) is not None
    assert read_settings(store).settings == {"source.type": "kafka"}
    set_file_aside(store.fs, ROOTS, damaged, RUN_ID)
    assert read_settings(store).settings == {"source.type": "kafka"}


def test_settings_without_a_recorded_document_are_not_recorded_again() -> None:
    with pytest.raises(FileNotFoundError):
        replace_unreadable_settings(World().store(new_machine()), PINNED)


@pytest.mark.parametrize("program", DAMAGED_FILES, ids=lambda program: program.name)
def test_damaged_files_are_repaired_or_refused(program: Program) -> None:
    machine = program.find()
    program.act(machine)
    assert program.recover(machine) == ""
