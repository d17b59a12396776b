"""Programs for the crash explorer: a killed run is resumed although an operator has set a watermark since."""

from __future__ import annotations

from functools import partial

from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import SetWatermark
from distcommit.core.watermark import Watermark
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, killed_before_drain, new_machine, violation_after_set_back
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_WORLD = World(policy=CommitPolicy.SUCCESSFUL, resume_across_runs=True)
_FIRST = ModelSource({"a": ModelDataset({"0": 2})})
_ALL = ModelSource({"a": ModelDataset({"0": 8}, units=3)})
_STOPPED = ModelSource({"a": ModelDataset({"0": 8}, units=3, bad={"0": 7})})
"""The last of three work units fails, so that the killed run leaves two finished ones."""
_BACK = Watermark({"0": 0})


def _killed() -> SimulatedPosix:
    """Publish two records, and kill the next run when it has finished two work units."""
    machine = new_machine()
    _WORLD.run(machine, _FIRST)
    killed_before_drain(machine, _WORLD, _STOPPED)
    machine.syncfs("/")
    return machine


def _set_back(machine: SimulatedPosix) -> None:
    segments = _WORLD.store(machine).bucket_log(0).segments()
    records = [segment.record for _, segment in segments if not isinstance(segment, DistcommitError)]
    if not any(isinstance(record, SetWatermark) for record in records):
        operator_actions.set_watermark(_WORLD.store(machine), "a", _BACK, "person")


def _set_back_and_run(machine: SimulatedPosix, *, runs: int) -> str:
    """Require that the two published records are read a second time, and that the finished work units are not used."""
    _set_back(machine)
    for _ in range(runs):
        _WORLD.run(machine, _ALL)
    return violation_after_set_back(machine, _WORLD, _ALL, 2)


def _set_back_and_resume(machine: SimulatedPosix) -> None:
    _set_back(machine)
    _WORLD.run(machine, _ALL)


RESUMED = (
    Program("resumed-after-set-back", _killed, _set_back, partial(_set_back_and_run, runs=1)),
    Program("resuming-after-set-back", _killed, _set_back_and_resume, partial(_set_back_and_run, runs=2)),
)
