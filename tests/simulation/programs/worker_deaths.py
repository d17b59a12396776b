"""Programs for the crash explorer: a worker dies while it reads a dataset, with its driver or without."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from distcommit.core.error_handling.error_text_classification import is_worker_death
from distcommit.testing.fakes.model_source import ModelSource, WorkerKilled
from tests.models.dying_workers import DyingLaunch
from tests.simulation.programs.parts import SOURCE, Program, new_machine, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World, launch_here

_WORLD = World(buckets=2)
_KILLING = ModelSource({**SOURCE.datasets, "a": replace(SOURCE.datasets["a"], kills=frozenset("0"))})


def _whole_runs_died(runs: int) -> SimulatedPosix:
    """Return a machine on which so many runs died whole with their worker."""
    machine = new_machine()
    for _ in range(runs):
        with suppress(WorkerKilled):
            _WORLD.run(machine, _KILLING, launched=lambda _: launch_here)
    machine.syncfs("/")
    return machine


def _run_on_one_attempt(machine: SimulatedPosix) -> None:
    _WORLD.run(machine, _KILLING, launched=lambda _: DyingLaunch())


def _run_on_four_attempts(machine: SimulatedPosix) -> None:
    _WORLD.run(machine, _KILLING, launched=lambda _: DyingLaunch(attempts=4))


def _all_others_published(machine: SimulatedPosix) -> str:
    """Require that a run after the crash publishes the other dataset and blames the killer, and that the killer's
    records are published once they kill no more."""
    result = _WORLD.run(machine, _KILLING, launched=lambda _: DyingLaunch())
    if result.error or [reason.subject for reason in result.reasons.entries] != ["a"]:
        return f"a worker that dies at dataset a ends the run with {result}"
    if not is_worker_death(result.reasons.entries[0].text):
        return f"the death of a worker is reported as {result.reasons.entries[0].text}"
    if _WORLD.watermarks(machine)["b"].positions != {"0": 2}:
        return "the death of a worker keeps another dataset from being published"
    return run_and_look(machine, _WORLD, SOURCE)


WORKER_DEATHS = (
    Program("worker-died", new_machine, _run_on_one_attempt, _all_others_published),
    Program("worker-died-and-was-tried-again", new_machine, _run_on_four_attempts, _all_others_published),
    Program("worker-died-with-its-driver", lambda: _whole_runs_died(2), _run_on_one_attempt, _all_others_published),
    Program(
        "worker-died-alone-with-its-driver", lambda: _whole_runs_died(3), _run_on_one_attempt, _all_others_published
    ),
)
