"""Renames of whole staged folders: when a run publishes by one, and when file by file."""

from __future__ import annotations

import pytest

from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.world import World
from tests.unit.engine.driver.machines import (
    OUTPUT,
    STAGING,
    Machine,
    audit,
    dies,
    go,
    published,
    source,
    states,
    statuses,
)

WORLD = World()


def moves(machine: Machine) -> list[str]:
    """Return the renames of folders into the output, including failed ones."""
    paths = [op.path for op in machine.made if op.kind == "rename"]
    return [path for path in paths if path.startswith(OUTPUT + "/") and "/." not in path]


def killed_at_its_move(machine: Machine) -> None:
    """Run so that dataset `b` is sealed and the process dies before it renames the folder."""
    WORLD.store(machine)
    machine.faults.append(dies("rename", OUTPUT + "/b"))
    with pytest.raises(Crashed):
        go(WORLD, machine, source(b=3))
    machine.restart()
    assert statuses(WORLD, machine) == {"b": "pending"}


def test_dataset_without_a_folder_is_published_by_one_rename() -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.made.clear()
    assert go(WORLD, machine, source(b=3)).succeeded
    assert moves(machine) == [f"{OUTPUT}/b"]
    assert f"{OUTPUT}/b" not in [op.path for op in machine.made if op.kind == "mkdir"]
    machine.made.clear()
    assert go(WORLD, machine, source(b=5)).succeeded
    assert [path.rpartition("/")[0] for path in moves(machine)] == [OUTPUT, f"{OUTPUT}/b"], (
        "the whole folder is tried first, then file by file"
    )
    audit_result = audit(WORLD, machine)
    assert (audit_result.exact, audit_result.records, audit_result.files) == (True, 5, 2)


def test_second_work_unit_of_a_new_dataset_is_published_file_by_file() -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.made.clear()
    assert go(WORLD, machine, source(a=[2, 2])).succeeded
    assert [path.count("/") for path in moves(machine)] == [3, 3, 4]
    assert audit(WORLD, machine).exact


def test_staged_folder_with_a_foreign_file_is_not_renamed_and_that_file_is_not_published() -> None:
    machine = Machine()
    WORLD.store(machine)

    def strange(operation: Operation) -> None:
        if operation.kind == "rename" and "/task_states/" in operation.path:
            machine.faults.remove(strange)
            folder = next(iter(machine.paths(STAGING))).rpartition("/")[0]
            machine.put(f"{folder}/strange.parquet", b"not ours")

    machine.faults.append(strange)
    assert go(WORLD, machine, source(b=3)).succeeded
    assert f"{OUTPUT}/b" not in moves(machine)
    assert not [path for path in published(machine) if "strange" in path]
    assert audit(WORLD, machine).exact


def test_replay_publishes_file_by_file_and_leaves_foreign_files_in_the_folder() -> None:
    machine = Machine()
    killed_at_its_move(machine)
    [staged] = machine.paths(STAGING)
    machine.put(f"{staged.rpartition('/')[0]}/strange.parquet", b"not ours")
    machine.made.clear()
    result = go(WORLD, machine, source())
    assert (result.succeeded, result.totals.sequences_replayed) == (True, 1)
    assert f"{OUTPUT}/b" not in moves(machine)
    assert not [path for path in published(machine) if "strange" in path]
    assert audit(WORLD, machine).exact


def test_file_lost_with_its_folder_in_place_is_never_counted_as_published() -> None:
    machine = Machine()
    killed_at_its_move(machine)
    [staged] = machine.paths(STAGING)
    machine.remove(staged)
    assert not go(WORLD, machine, source()).succeeded
    assert statuses(WORLD, machine) == {"b": "quarantined"}
    assert "no file at either path" in states(WORLD, machine)["b"].reason


def test_file_at_the_folder_s_path_fails_only_its_own_dataset() -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.put(f"{OUTPUT}/b", b"somebody's")
    result = go(WORLD, machine, source(a=1, b=3))
    assert (result.succeeded, result.totals.datasets_published) == (False, 1)
    assert machine.paths(OUTPUT)[f"{OUTPUT}/b"] == b"somebody's"
