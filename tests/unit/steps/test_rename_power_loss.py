"""The rename step and power loss: no file that is published, or about to be, is ever lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from distcommit.core.interfaces.commit_step import Lost, StepContext, Verdict
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import OUTPUT, STAGING, LinkMachine, Machine, dies_at, on_every_power_loss


def vanishing(machine: Machine, folder: str) -> Callable[[Operation], None]:
    """Remove the empty target folder right before the first rename into it."""

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(folder + "/"):
            machine.faults.clear()
            machine.rmdir(folder)

    return fault


def steps_of(machine: Machine, folders: Sequence[str]) -> list[FsRenameCommitStep]:
    """Return a durable staged file for each folder, and the steps that publish them."""
    for root in (STAGING, OUTPUT):
        machine.mkdir(root)
    for place, _ in enumerate(folders):
        machine.put(f"{STAGING}/{place}", b"data%d" % place)
    machine.syncfs("/")
    context = StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT)
    return [FsRenameCommitStep(context, str(place), f"{folder}/f") for place, folder in enumerate(folders)]


def lost_steps(steps: Sequence[FsRenameCommitStep]) -> tuple[Callable[[SimulatedPosix, str], None], list[str]]:
    """Record where a power loss would leave a file neither at its source nor at its target."""
    lost_paths: list[str] = []

    def look(after: SimulatedPosix, where: str) -> None:
        context = StepContext(SimulatedFileSystem(after), STAGING, OUTPUT)
        answers = [FsRenameCommitStep.of(context, step.file).verify() for step in steps]
        lost_paths.extend(where for answer in answers if isinstance(answer, Lost))

    return look, lost_paths


@pytest.mark.parametrize("kind", [Machine, LinkMachine])
@pytest.mark.parametrize("died_at", range(14))
def test_power_loss_never_removes_a_published_file_whatever_a_dead_twin_did(kind: type[Machine], died_at: int) -> None:
    machine = kind()
    steps = steps_of(machine, ["a/b", "a/b/c"])
    machine.faults.append(dies_at(died_at))
    with suppress(Crashed):
        FsRenameCommitStep.execute_all(steps)
    machine.restart()
    look, lost_paths = lost_steps(steps)
    on_every_power_loss(machine, look)
    assert FsRenameCommitStep.execute_all(steps) == [None, None]
    machine.rmdir(STAGING)  # one more attempt, and no file is left there
    assert lost_paths == []
    assert {path.rpartition("/")[0] for path in machine.paths(OUTPUT)} == {f"{OUTPUT}/a/b", f"{OUTPUT}/a/b/c"}


def test_vanished_target_folder_is_created_again_and_no_power_loss_removes_its_file() -> None:
    machine = Machine()
    steps = steps_of(machine, ["a/b"])
    machine.faults.append(vanishing(machine, f"{OUTPUT}/a/b"))
    look, lost_paths = lost_steps(steps)
    on_every_power_loss(machine, look)
    steps[0].execute()
    machine.rmdir(STAGING)
    assert lost_paths == []
    assert machine.read_file(f"{OUTPUT}/a/b/f") == b"data0"


def test_batch_of_folders_is_durable_when_its_steps_are() -> None:
    machine = Machine()
    steps = steps_of(machine, [f"a{place}/b" for place in range(20)])
    assert FsRenameCommitStep.execute_all(steps) == [None] * 20
    after = next(machine.after_power_loss(random.Random(1), 0, 0))
    context = StepContext(SimulatedFileSystem(after), STAGING, OUTPUT)
    assert {FsRenameCommitStep.of(context, step.file).verify() for step in steps} == {Verdict.DONE}


def whole_folder(machine: Machine) -> list[FsRenameCommitStep]:
    """Return the step of a durable staged folder with one file, which may be renamed as a whole to `a/b`."""
    for folder in (STAGING, OUTPUT, f"{STAGING}/0"):
        machine.mkdir(folder)
    machine.put(f"{STAGING}/0/f", b"data")
    machine.syncfs("/")
    context = StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT)
    return FsRenameCommitStep.of_all(context, [FsRenameCommitStep(context, "0/f", "a/b/f").file], is_complete=True)


def test_parent_folder_is_durable_before_a_whole_folder_moves_into_it_whoever_created_it() -> None:
    machine = Machine()
    steps = whole_folder(machine)
    machine.mkdir(f"{OUTPUT}/a")  # by a twin that died before it could sync
    look, lost_paths = lost_steps(steps)
    on_every_power_loss(machine, look)
    assert FsRenameCommitStep.execute_all(steps) == [None]
    machine.mkdir(f"{STAGING}/1")  # one more attempt
    assert lost_paths == []
    assert machine.paths(STAGING) == {}
    assert machine.read_file(f"{OUTPUT}/a/b/f") == b"data"


def test_folder_created_by_a_twin_right_before_the_rename_is_durable_before_files_move_into_it() -> None:
    machine = Machine()
    steps = whole_folder(machine)
    machine.mkdir(f"{OUTPUT}/a")
    machine.syncfs("/")

    def twin(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path == f"{OUTPUT}/a/b":
            machine.faults.remove(twin)
            machine.mkdir(f"{OUTPUT}/a/b")

    machine.faults.append(twin)
    look, lost_paths = lost_steps(steps)
    on_every_power_loss(machine, look)
    assert FsRenameCommitStep.execute_all(steps) == [None]
    assert twin not in machine.faults
    machine.rmdir(f"{STAGING}/0")  # one more attempt
    assert lost_paths == []
    assert machine.read_file(f"{OUTPUT}/a/b/f") == b"data"
