"""Batched puts on a local disk are complete, durable once acknowledged, and return errors for the failed files."""

from __future__ import annotations

import errno
import random

import pytest

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.temporary_and_probes import TEMPORARY
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, fails, on_every_power_loss

ONE, MANY = 1, 8
"""Sizes of a batch: a single file is synced alone, many files by one call."""


def puts(machine: Machine, many: int) -> tuple[LocalFileSystem, list[tuple[str, bytes]]]:
    """Return `many` files to put into existing durable folders."""
    fs = SimulatedFileSystem(machine)
    for place in range(many):
        fs.make_folders(f"/job/{place}")
    machine.syncfs("/")
    return fs, [(f"/job/{place}/a", b"whole") for place in range(many)]


@pytest.mark.parametrize("many", [ONE, MANY])
@pytest.mark.parametrize(("kind", "part"), [("fsync", ""), ("syncfs", ""), ("fsync_folder", ""), ("write", "")])
def test_failed_puts_return_errors_and_the_others_are_durable(many: int, kind: str, part: str) -> None:
    for nth in range(1, 2 * many):
        machine = Machine()
        fs, files = puts(machine, many)
        machine.faults.append(fails(errno.EIO, kind, part, first=nth, times=1))
        answers = fs.put_all_if_absent(files)
        durable = next(machine.after_power_loss(random.Random(1), 0, 0)).files()
        stored = {path: data for _, path, data in durable if data is not None}
        for (path, data), answer in zip(files, answers, strict=True):
            assert answer is True or isinstance(answer, OSError)
            if answer is True:
                assert stored[path] == data
        assert not [path for path in machine.paths("/job") if TEMPORARY in path]


@pytest.mark.parametrize("many", [ONE, MANY])
def test_power_loss_never_leaves_a_partial_put(many: int) -> None:
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
def test_acknowledged_put_survives_a_power_loss(many: int) -> None:
    machine = Machine()
    fs, files = puts(machine, many)
    fs.put_all_if_absent(files)
    after = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert {path: data for _, path, data in after.files() if data is not None} == dict(files)
