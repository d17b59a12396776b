"""Programs for the crash explorer: a job whose delivery is changed after a run that crashed."""

from __future__ import annotations

from functools import partial

from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_EXACTLY, _AT_LEAST = World(), World(at_least_once=True)
_MORE = ModelSource({**SOURCE.datasets, "a": ModelDataset({"0": 4, "1": 2}, units=2), "c": ModelDataset({"0": 1})})


def _after_one_run(world: World) -> SimulatedPosix:
    machine = new_machine()
    world.run(machine, SOURCE)
    machine.syncfs("/")
    return machine


def _run(world: World, machine: SimulatedPosix) -> None:
    world.run(machine, _MORE)


def _to_exactly_once(machine: SimulatedPosix) -> str:
    """Require that files which the crashed run published and did not record are there twice."""
    before = _EXACTLY.watermarks(machine)
    _EXACTLY.run(machine, _MORE)
    return _AT_LEAST.violation(machine, _MORE, before)


def _to_at_least_once(machine: SimulatedPosix) -> str:
    """Require that sealed sequences of the crashed run are replayed, and all is there once: there was no later
    crash."""
    before = _EXACTLY.watermarks(machine)
    _AT_LEAST.run(machine, _MORE)
    return _EXACTLY.violation(machine, _MORE, before)


DELIVERY = (
    Program("to-exactly-once", partial(_after_one_run, _AT_LEAST), partial(_run, _AT_LEAST), _to_exactly_once),
    Program("to-at-least-once", partial(_after_one_run, _EXACTLY), partial(_run, _EXACTLY), _to_at_least_once),
)
