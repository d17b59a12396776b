"""Programs for the crash explorer: a run that makes the store delete the records of the oldest run."""

from __future__ import annotations

from distcommit.protocol.paths.store import RUNS
from distcommit.stores.history.retention import Retention
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, new_machine, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_KEPT = Retention(runs=3, tables=2)
_WORLD = World(kept=_KEPT)


def _many_runs() -> SimulatedPosix:
    machine = new_machine()
    for number in range(_KEPT.runs + 2):
        _WORLD.run(machine, ModelSource({"a": ModelDataset({"0": number + 1})}))
    machine.syncfs("/")
    return machine


def _one_more_run(machine: SimulatedPosix) -> None:
    _WORLD.run(machine, ModelSource({"a": ModelDataset({"0": _KEPT.runs + 3})}))


def _forgotten(machine: SimulatedPosix) -> str:
    wrong = run_and_look(machine, _WORLD, ModelSource({"a": ModelDataset({"0": _KEPT.runs + 4})}))
    listed = SimulatedFileSystem(machine).list_folder
    tables = len(listed(f"{ROOTS.store}/task_states"))
    records = len({entry.name[:10] for entry in listed(f"{ROOTS.store}/{RUNS}")})
    as_said = (tables, records) == (_KEPT.tables + 1, _KEPT.runs + 1)
    return wrong or ("" if as_said else f"{tables} runs' tables and {records} records are kept, with the newest")


RETENTION = (Program("retention", _many_runs, _one_more_run, _forgotten),)
