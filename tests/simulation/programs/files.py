"""Programs for the crash explorer: foreign changes to the files of a sealed sequence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.staging import bucket_folder
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import open_store
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.programs.parts import (
    ASIDE,
    SOURCE,
    Meddling,
    Program,
    new_machine,
    planned,
    publishing_at_most,
    put_file,
    run_and_look,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD = World(max_attempts=1)
_OUTSIDE = "/job/outside"


def sealed() -> tuple[SimulatedPosix, list[FsRenameCommitStep]]:
    """Seal both datasets by a run that died before it published a file; return the steps."""
    machine = new_machine()
    settings = planned(machine, _WORLD, SOURCE)
    with publishing_at_most(machine, 0), suppress(Crashed):
        ingest_partition(settings, 0)
    steps = steps_of(_WORLD.store(machine).fs)
    for folder in sorted({folder_above(step.target) for step in steps}):
        machine.rmdir(folder)
    return machine, steps


def steps_of(fs: FileSystem) -> list[FsRenameCommitStep]:
    """Return the steps of all open sequences."""
    states = open_store(fs, ROOTS, "job", create=False).bucket_log(0).refresh().datasets.values()
    context = StepContext(fs, ROOTS.staging, ROOTS.output)
    batches = [batch for state in states if state.sequence for batch in state.sequence.steps]
    return [step for step in load_steps(batches, context) if isinstance(step, FsRenameCommitStep)]


def folder_above(path: str) -> str:
    """Return the folder of a path."""
    return path.rpartition("/")[0]


def replay(calls: PosixCalls) -> None:
    """Run a recovery only."""
    recover_partition(_WORLD.begin(calls, SOURCE), 0)


def retry_and_run(machine: SimulatedPosix) -> str:
    """Retry the quarantined datasets once the cause is repaired."""
    store = _WORLD.store(machine)
    for state in store.bucket_log(0).refresh().datasets.values():
        if state.status is DatasetStatus.QUARANTINED:
            operator_actions.retry(store, state.dataset_urn, "person")
    return run_and_look(machine, _WORLD, SOURCE)


def _occupied() -> SimulatedPosix:
    """Put another program's file at one target path, and a folder at another."""
    machine, steps = sealed()
    fs = SimulatedFileSystem(machine)
    first, second = steps[0], steps[-1]
    for step in (first, second):
        fs.make_folders(folder_above(step.target))
    put_file(machine, first.target, b"x" * first.file.size_bytes)
    machine.mkdir(second.target)
    machine.syncfs("/")
    return machine


def _make_room_and_run(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    for step in steps_of(fs):
        file_status = fs.status(step.target)
        if file_status is not None and file_status.is_folder:
            fs.delete_folder(step.target)
        elif file_status is not None and fs.read(step.target).startswith(b"x"):
            fs.delete(step.target)
    return retry_and_run(machine)


def _copied() -> SimulatedPosix:
    """Replace two staged files: one by a copy of itself, one by other bytes. The original lies aside."""
    machine, steps = sealed()
    copied, altered = steps[0].source, steps[-1].source
    data = machine.read_file(copied)
    machine.unlink(copied)
    put_file(machine, copied, data)
    machine.rename_noreplace(altered, ASIDE)
    put_file(machine, altered, b"x" * len(machine.read_file(ASIDE)))
    machine.syncfs("/")
    return machine


def _replay_beside_a_twin(machine: SimulatedPosix) -> None:
    """A twin publishes the copied file during its verification."""
    step = steps_of(SimulatedFileSystem(machine))[0]

    def publish() -> None:
        fs = SimulatedFileSystem(machine)
        fs.make_folders(folder_above(step.target))
        fs.sync([folder_above(step.target)], ROOTS.output)
        fs.rename(step.source, step.target)

    reads = Meddling(machine, lambda name, arguments: (name, *arguments) == ("read_file", step.source), publish)
    replay(reads.as_calls())


def _replay_as_a_twin_moves_folders(machine: SimulatedPosix) -> None:
    """A twin publishes a dataset's folder as a whole, between two checks of it."""
    steps = steps_of(SimulatedFileSystem(machine))
    last = steps[-1]

    def publish() -> None:
        machine.rename_noreplace(folder_above(last.source), folder_above(last.target))

    looks = Meddling(machine, lambda name, arguments: (name, *arguments) == ("lstat", last.source), publish)
    replay(looks.as_calls())


def _run_and_look(machine: SimulatedPosix) -> str:
    return run_and_look(machine, _WORLD, SOURCE)


def _put_back_and_run(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    for step in steps_of(fs):
        file_status = fs.status(step.source)
        if file_status is not None and fs.read(step.source).startswith(b"x"):
            fs.delete(step.source)
            fs.rename(ASIDE, step.source)
    return retry_and_run(machine)


def _file_for_folder() -> SimulatedPosix:
    """Put a file where a dataset's folder must be."""
    machine, steps = sealed()
    put_file(machine, folder_above(steps[0].target), b"x")
    machine.syncfs("/")
    return machine


def _abandon_and_run(machine: SimulatedPosix) -> str:
    """Delete that file; the datasets that it quarantined are read again."""
    store = _WORLD.store(machine)
    for step in steps_of(store.fs):
        file_status = store.fs.status(folder_above(step.target))
        if file_status is not None and not file_status.is_folder:
            store.fs.delete(folder_above(step.target))
    for state in store.bucket_log(0).refresh().datasets.values():
        if state.status is DatasetStatus.QUARANTINED:
            operator_actions.abandon(store, state.dataset_urn, "person")
    return run_and_look(machine, _WORLD, SOURCE)


def _linked() -> SimulatedPosix:
    """Add symbolic links: one dataset's folder leads out of the output, the other's to another folder in it."""
    machine, steps = sealed()
    machine.mkdir(_OUTSIDE)
    first, last = folder_above(steps[0].target), folder_above(steps[-1].target)
    machine.symlink(_OUTSIDE, first)
    machine.mkdir(f"{last}.real")
    machine.symlink(f"{last}.real", last)
    machine.syncfs("/")
    return machine


def _unlink_and_run(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    if fs.list_folder(_OUTSIDE):
        return f"published outside of the output: {fs.list_folder(_OUTSIDE)}"
    for entry in fs.list_folder(ROOTS.output):
        path = f"{ROOTS.output}/{entry.name}"
        if machine.realpath(path) != path:
            fs.delete(path)
            if fs.status(f"{path}.real") is not None:
                fs.rename(f"{path}.real", path)
    return retry_and_run(machine)


def _staged_outside() -> SimulatedPosix:
    """Move an attempt's folder elsewhere, and replace it by a symbolic link."""
    machine, steps = sealed()
    folder = folder_above(steps[0].source)
    machine.rename_noreplace(folder, _OUTSIDE)
    machine.symlink(_OUTSIDE, folder)
    machine.syncfs("/")
    return machine


def _move_back_and_run(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    for folder in {folder_above(step.source) for step in steps_of(fs)}:
        if machine.realpath(folder) != folder:
            fs.delete(folder)
            fs.rename(_OUTSIDE, folder)
    return retry_and_run(machine)


def _unpublished() -> SimulatedPosix:
    """Create the datasets' folders, as after an earlier run, so that files are published one by one."""
    machine, steps = sealed()
    for step in steps:
        SimulatedFileSystem(machine).make_folders(folder_above(step.target))
    machine.syncfs("/")
    return machine


def _replay_while_folders_go(machine: SimulatedPosix) -> None:
    """Both datasets' folders are removed as their first files are about to move in.

    At the next try a twin has moved one of them, and the other's folder is removed once more.
    """
    first, *_, last = steps_of(SimulatedFileSystem(machine))

    def moves(step: FsRenameCommitStep, name: str, arguments: tuple[Any, ...]) -> bool:
        return name == "rename_noreplace" and arguments[1] == step.target

    def remove(step: FsRenameCommitStep) -> None:
        machine.rmdir(folder_above(step.target))

    def move() -> None:
        machine.rename_noreplace(first.source, first.target)

    calls = Meddling(machine, partial(moves, first), partial(remove, first), move)
    replay(Meddling(calls, partial(moves, last), partial(remove, last), partial(remove, last)).as_calls())


def _replay_while_a_folder_is_renamed(machine: SimulatedPosix) -> None:
    """A dataset's folder is renamed once its files are in it, before it is synced."""
    folder = folder_above(steps_of(SimulatedFileSystem(machine))[-1].target)

    def syncs(name: str, arguments: tuple[Any, ...]) -> bool:
        return name == "fsync_folder" and arguments[0] == folder

    replay(Meddling(machine, syncs, partial(machine.rename_noreplace, folder, ASIDE)).as_calls())


def _rename_back_and_run(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    for folder in {folder_above(step.target) for step in steps_of(fs)}:
        if fs.status(folder) is None and fs.status(ASIDE) is not None:
            fs.rename(ASIDE, folder)
    return retry_and_run(machine)


def _file_for_attempt() -> SimulatedPosix:
    """Put a file where an attempt's folder must be, which is moved aside."""
    machine, steps = sealed()
    folder = folder_above(steps[0].source)
    machine.rename_noreplace(folder, ASIDE)
    put_file(machine, folder, b"x")
    machine.syncfs("/")
    return machine


def _put_attempt_back_and_run(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    for folder in {folder_above(step.source) for step in steps_of(fs)}:
        file_status = fs.status(folder)
        if file_status is not None and not file_status.is_folder:
            fs.delete(folder)
            fs.rename(ASIDE, folder)
    return retry_and_run(machine)


@cache
def _planned_run() -> tuple[SimulatedPosix, RunSettings]:
    machine = new_machine()
    settings = planned(machine, _WORLD, SOURCE)
    machine.syncfs("/")
    return machine, settings


def about_to_ingest() -> SimulatedPosix:
    """Return a run that has planned and is about to ingest."""
    return _planned_run()[0].after_kill()


def _ingest_while_files_go(machine: SimulatedPosix) -> None:
    """Staged files disappear as the run checks that all are there."""
    _ingest_beside_a_thief(machine, lambda name, arguments: name == "scandir" and arguments[0].count("/") > 4)


def _ingest_while_files_go_late(machine: SimulatedPosix) -> None:
    """Staged files disappear after that check, as their folders are about to be renamed."""
    _ingest_beside_a_thief(
        machine, lambda name, arguments: name == "rename_noreplace" and arguments[1].startswith(ROOTS.output)
    )


def _ingest_beside_a_thief(machine: SimulatedPosix, comes: Callable[[str, tuple[Any, ...]], bool]) -> None:
    def remove() -> None:
        for path in staged_by_attempts(machine):
            machine.unlink(path)

    ingest_beside(machine, comes, remove)


def ingest_beside(
    machine: SimulatedPosix, comes: Callable[[str, tuple[Any, ...]], bool], does: Callable[[], object]
) -> None:
    """Ingest and drain the planned run, with a foreign change before a call that fits.

    Only calls that begin at its attempts' folders are checked.
    """

    def concerns(name: str, arguments: tuple[Any, ...]) -> bool:
        return str(arguments[0]).startswith(_attempts()) and comes(name, arguments)

    settings = replace(_planned_run()[1], store=_WORLD.store(Meddling(machine, concerns, does).as_calls()))
    ingest_partition(settings, 0)
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    drain_partition(settings, 0)


def staged_by_attempts(machine: SimulatedPosix) -> list[str]:
    """Return the files that attempts of the planned run have staged."""
    return [path for path, _ in machine.walk(_attempts()) if path.endswith(".parquet")]


def _attempts() -> str:
    return f"{ROOTS.staging}/{bucket_folder(_planned_run()[1].epoch, 0)}"


def abandon_lost_and_run(machine: SimulatedPosix) -> str:
    """Require that stolen records are read again once an operator abandons the sequences."""
    wrong = retry_and_run(machine)
    store = _WORLD.store(machine)
    for state in store.bucket_log(0).refresh().datasets.values():
        if state.status is DatasetStatus.QUARANTINED:
            operator_actions.abandon(store, state.dataset_urn, "person")
            wrong = ""
    return wrong or run_and_look(machine, _WORLD, SOURCE)


FILES = (
    Program("target-occupied", _occupied, replay, _make_room_and_run),
    Program("staged-replaced", _copied, _replay_beside_a_twin, _put_back_and_run),
    Program("moved-between-looks", lambda: sealed()[0], _replay_as_a_twin_moves_folders, _run_and_look),
    Program("file-for-folder", _file_for_folder, replay, _abandon_and_run),
    Program("links-out", _linked, replay, _unlink_and_run),
    Program("staged-outside", _staged_outside, replay, _move_back_and_run),
    Program("staged-vanishes", about_to_ingest, _ingest_while_files_go, retry_and_run),
    Program("staged-vanishes-late", about_to_ingest, _ingest_while_files_go_late, abandon_lost_and_run),
    Program("folder-vanishes", _unpublished, _replay_while_folders_go, retry_and_run),
    Program("folder-renamed", _unpublished, _replay_while_a_folder_is_renamed, _rename_back_and_run),
    Program("file-for-attempt", _file_for_attempt, replay, _put_attempt_back_and_run),
)
