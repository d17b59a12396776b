"""Deletion of whole folders is complete, limited to the folder, and completed after a kill by the next one."""

from __future__ import annotations

import pytest

from distcommit.stores.folders.folder_trees import delete_entry, delete_tree
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem

FILES = ("a", "below/b", "below/c", "below/deep/d")


def tree(deleted: str = "/job/gone") -> SimulatedPosix:
    machine = SimulatedPosix()
    fs = SimulatedFileSystem(machine)
    for folder in (deleted, "/job/stays"):
        fs.make_folders(f"{folder}/below/deep")
        fs.make_folders(f"{folder}/empty")
        for name in FILES:
            fs.put_if_absent(f"{folder}/{name}", b"1")
    return machine


def names(machine: SimulatedPosix, folder: str) -> list[str]:
    return [entry.name for entry in SimulatedFileSystem(machine).list_folder(folder)]


def test_deleting_a_tree_removes_all_of_it_and_no_sibling() -> None:
    machine = tree()
    fs = SimulatedFileSystem(machine)
    assert delete_tree(fs, "/job/gone") == len(FILES)
    assert names(machine, "/job") == ["stays"]
    assert sorted(names(machine, "/job/stays")) == ["a", "below", "empty"]
    assert delete_tree(fs, "/job/gone") == 0
    assert delete_tree(fs, "/job/stays/empty") == 0
    assert sorted(names(machine, "/job/stays")) == ["a", "below"]


def test_deleting_a_listed_entry_removes_a_file_or_a_folder() -> None:
    machine = tree()
    fs = SimulatedFileSystem(machine)
    assert {entry.name: delete_entry(fs, "/job/gone", entry) for entry in fs.list_folder("/job/gone")} == {
        "a": 1,
        "below": 3,
        "empty": 0,
    }
    assert names(machine, "/job/gone") == []


def test_deletion_killed_at_any_operation_is_completed_by_the_next() -> None:
    whole: list[Operation] = []
    machine = tree()
    machine.gate = whole.append
    delete_tree(SimulatedFileSystem(machine), "/job/gone")
    for place in range(len(whole)):
        machine, operations = tree(), list[Operation]()

        def dies(operation: Operation, place: int = place, operations: list[Operation] = operations) -> None:
            if len(operations) == place:
                raise Crashed
            operations.append(operation)

        machine.gate = dies
        with pytest.raises(Crashed):
            delete_tree(SimulatedFileSystem(machine), "/job/gone")
        machine.gate = None
        delete_tree(SimulatedFileSystem(machine), "/job/gone")
        assert names(machine, "/job") == ["stays"]
