"""Many puts at once on a local disk: whole, durable once answered, and errors told to those they concern."""

from __future__ import annotations

import errno
import random

import pytest

from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.protocol.paths.temporary import TEMPORARY
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, fails, on_every_power_loss

ONE, MANY = 1, 8
"""Puts at once: synced by itself, and all of them by one call."""


def puts(machine: Machine, many: int) -> tuple[LocalFileSystem, list[tuple[str, bytes]]]:
    """That many files to put into folders that are there, durably."""
    fs = SimulatedFileSystem(machine)
    for place in range(many):
        fs.make_folders(f"/job/{place}")
    machine.syncfs("/")
    return fs, [(f"/job/{place}/a", b"whole") for place in range(many)]


@pytest.mark.parametrize("many", [ONE, MANY])
@pytest.mark.parametrize(("kind", "part"), [("fsync", ""), ("syncfs", ""), ("fsync_folder", ""), ("write", "")])
def test_puts_that_fail_are_told_as_errors_and_the_others_are_there(many: int, kind: str, part: str) -> None:
    for nth in range(1, 2 * many):
        machine = Machine()
        fs, files = puts(machine, many)
        machine.faults.append(fails(errno.EIO, kind, part, first=nth, times=1))
        answers = fs.put_all_if_absent(files)
        durable = next(machine.after_power_loss(random.Random(1), 0, 0)).files()
        there = {path: data for _, path, data in durable if data is not None}
        for (path, data), answer in zip(files, answers, strict=True):
            assert answer is True or isinstance(answer, OSError)
            if answer is True:
                assert there[path] == data
        assert not [path for path in machine.paths("/job") if TEMPORARY in path]


@pytest.mark.parametrize("many", [ONE, MANY])
def test_no_power_loss_leaves_part_of_a_put(many: int) -> None:
    machine = Machine()
    fs, files = puts(machine, many)
    torn: list[str] = []

    def look(after: SimulatedPosix, where: str) -> None:
        torn.extend(where for _, path, data in after.files() if path.endswith("/a") and data != b"whole")

    on_every_power_loss(machine, look)
    assert fs.put_all_if_absent(files) == [True] * many
    assert fs.put_all_if_absent(files) == [False] * many
    assert torn == []


@pytest.mark.parametrize("many", [ONE, MANY])
def test_a_put_that_was_answered_survives_a_power_loss(many: int) -> None:
    machine = Machine()
    fs, files = puts(machine, many)
    fs.put_all_if_absent(files)
    after = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert {path: data for _, path, data in after.files() if data is not None} == dict(files)
