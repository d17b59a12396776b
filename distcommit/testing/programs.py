"""Programs for the crash explorer beyond runs of the usual job: what people do by hand, own commit steps and sinks, the
lock, damage.

Each has three parts: a machine as it is found, what is done on it (crashed at every operation), and what is done after
the crash, which must end with everything as it has to be.
"""

from __future__ import annotations

from distcommit.stores.retention import KEPT_RUNS
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.program_parts import Program, new_machine, run_and_look
from distcommit.testing.programs_attempts import ATTEMPTS
from distcommit.testing.programs_broken_steps import BROKEN_STEPS
from distcommit.testing.programs_by_hand import BY_HAND
from distcommit.testing.programs_damage import DAMAGE
from distcommit.testing.programs_delivery import DELIVERY
from distcommit.testing.programs_files import FILES
from distcommit.testing.programs_lock import LOCK
from distcommit.testing.programs_moves import MOVES
from distcommit.testing.programs_own_steps import OWN_STEPS
from distcommit.testing.programs_replaced import REPLACED
from distcommit.testing.programs_sink import SINK
from distcommit.testing.simulated_posix import SimulatedPosix
from distcommit.testing.world import ROOTS, SimulatedFileSystem, World


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


_RETENTION = Program("retention", _many_runs, _one_more_run, _forgotten)
PROGRAMS = {
    program.name: program
    for program in (
        *BY_HAND,
        *OWN_STEPS,
        *SINK,
        *BROKEN_STEPS,
        *FILES,
        *REPLACED,
        *LOCK,
        _RETENTION,
        *DAMAGE,
        *MOVES,
        *DELIVERY,
        *ATTEMPTS,
    )
}
