"""Programs for the crash explorer: a run that makes the store forget the oldest one."""

from __future__ import annotations

from distcommit.stores.retention import KEPT_RUNS
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.programs.parts import Program, new_machine, run_and_look
from distcommit.testing.simulation.simulated_posix import SimulatedPosix
from distcommit.testing.simulation.world import ROOTS, SimulatedFileSystem, World


def _many_runs() -> SimulatedPosix:
    machine, world = new_machine(), World()
    for number in range(KEPT_RUNS + 2):
        world.run(machine, ModelSource({"a": ModelDataset({"0": number + 1})}))
    machine.syncfs("/")
    return machine


def _one_more_run(machine: SimulatedPosix) -> None:
    World().run(machine, ModelSource({"a": ModelDataset({"0": KEPT_RUNS + 3})}))


def _forgotten(machine: SimulatedPosix) -> str:
    wrong = run_and_look(machine, World(), ModelSource({"a": ModelDataset({"0": KEPT_RUNS + 4})}))
    kept = len(SimulatedFileSystem(machine).list_folder(f"{ROOTS.store}/task_states"))
    return wrong or ("" if kept == KEPT_RUNS + 1 else f"{kept} runs are kept, with the newest")


RETENTION = (Program("retention", _many_runs, _one_more_run, _forgotten),)
