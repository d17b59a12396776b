"""Programs for the crash explorer: files with the right name and size that differ from the staged ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from distcommit.core.records.log_records import DatasetStatus
from distcommit.stores.operator import operator_actions
from tests.simulation.programs.files import (
    abandon_lost_and_run,
    about_to_ingest,
    folder_above,
    ingest_beside,
    replay,
    retry_and_run,
    sealed,
    staged_by_attempts,
    steps_of,
)
from tests.simulation.programs.parts import SOURCE, Program, put_file, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD = World(max_attempts=1)


def _foreign(machine: SimulatedPosix) -> list[str]:
    """Put foreign files below the output and the task output."""
    return [
        path
        for _, path, data in machine.files()
        if data is not None
        and data == b"x" * len(data)
        and path.endswith(".parquet")
        and path.startswith((f"{ROOTS.staging}/", f"{ROOTS.output}/"))
    ]


def _replace_staged(machine: SimulatedPosix) -> None:
    """Replace the staged files by others of the same names and sizes."""
    for path in staged_by_attempts(machine):
        size = len(machine.read_file(path))
        machine.unlink(path)
        put_file(machine, path, b"x" * size)


def _is_listed(name: str, arguments: tuple[Any, ...]) -> bool:
    return name == "scandir" and arguments[0].count("/") > 4


def _is_moved(name: str, arguments: tuple[Any, ...]) -> bool:
    return name == "rename_noreplace" and arguments[1].startswith(f"{ROOTS.output}/")


def _ingest_as_files_are_replaced(machine: SimulatedPosix) -> None:
    """The files are replaced before the run checks that all are there."""
    ingest_beside(machine, _is_listed, partial(_replace_staged, machine))


def _ingest_as_files_are_replaced_late(machine: SimulatedPosix) -> None:
    """The files are replaced after that check, as their folders are about to be renamed."""
    ingest_beside(machine, _is_moved, partial(_replace_staged, machine))


def _ingest_as_a_place_is_taken(machine: SimulatedPosix) -> None:
    """A foreign file of the same size appears at the first file's path just before it is renamed."""

    def take() -> None:
        step = steps_of(SimulatedFileSystem(machine))[0]
        put_file(machine, step.target, b"x" * step.file.size_bytes)

    for urn in ("a", "b"):
        SimulatedFileSystem(machine).make_folders(f"{ROOTS.output}/{urn}")
    ingest_beside(machine, _is_moved, take)


def _without_foreign(machine: SimulatedPosix) -> SimulatedPosix:
    for path in _foreign(machine):
        machine.unlink(path)
    return machine


def _clear_and_run(machine: SimulatedPosix) -> str:
    """Require that the records of lost files are read again, without an operator action."""
    return retry_and_run(_without_foreign(machine))


def _clear_abandon_and_run(machine: SimulatedPosix) -> str:
    return abandon_lost_and_run(_without_foreign(machine))


def _one_more_staged() -> SimulatedPosix:
    """Add an unknown file to the staged files of a sealed sequence."""
    machine, steps = sealed()
    path = steps[0].source
    put_file(machine, path.replace("-0001.", "-0009.").replace("-0000.", "-0009."), machine.read_file(path))
    machine.syncfs("/")
    return machine


def _occupied_and_quarantined() -> SimulatedPosix:
    """Put a foreign file of the same size at a target path; the next run quarantines the dataset."""
    machine, steps = sealed()
    SimulatedFileSystem(machine).make_folders(folder_above(steps[0].target))
    put_file(machine, steps[0].target, b"x" * steps[0].file.size_bytes)
    replay(machine)
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix) -> None:
    store = _WORLD.store(machine)
    for state in store.bucket_log(0).refresh().datasets.values():
        if state.status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
            operator_actions.abandon(store, state.dataset_urn, "person")


def _abandon_check_and_run(machine: SimulatedPosix) -> str:
    """Abandon while the foreign file is still there; then it is deleted, and all is read again."""
    _abandon(machine)
    if not _foreign(machine):
        return "another program's file was taken away"
    return run_and_look(_without_foreign(machine), _WORLD, SOURCE)


REPLACED = (
    Program("staged-replaced-early", about_to_ingest, _ingest_as_files_are_replaced, _clear_and_run),
    Program("staged-replaced-late", about_to_ingest, _ingest_as_files_are_replaced_late, _clear_abandon_and_run),
    Program("place-taken", about_to_ingest, _ingest_as_a_place_is_taken, _clear_and_run),
    Program("one-more-staged", _one_more_staged, replay, retry_and_run),
    Program("abandon-occupied", _occupied_and_quarantined, _abandon, _abandon_check_and_run),
)
