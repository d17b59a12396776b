"""Programs for the crash explorer: runs of a job whose settings have been changed."""

from __future__ import annotations

from functools import partial

from distcommit.engine.run import run
from distcommit.model.errors import ConfigurationError
from distcommit.model.pins import Pin, PinnedSettings
from distcommit.stores.fencing import end_run
from distcommit.stores.pinned import read_settings, require_settings
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.program_parts import Program, new_machine, require_refused
from distcommit.testing.simulated_posix import SimulatedPosix
from distcommit.testing.world import World, launch_here

_WORLD = World()
_BY_TOPIC = PinnedSettings({"source.dataset": Pin("topic")})
_BY_PARTITION = PinnedSettings({"source.dataset": Pin("partition")})
_TOPICS = ModelSource({"a": ModelDataset({"0": 2, "1": 1})})
_PARTITIONS = ModelSource({"a@0": ModelDataset({"0": 2}), "a@1": ModelDataset({"1": 1})})


def _empty_store() -> SimulatedPosix:
    machine = new_machine()
    _WORLD.store(machine)
    machine.syncfs("/")
    return machine


def _run(machine: SimulatedPosix, source: ModelSource, pinned: PinnedSettings) -> None:
    """A whole run, as a job does it."""
    require_settings(_WORLD.store(machine), pinned)
    settings = _WORLD.begin(machine, source)
    result = run(launch_here, settings, pinned=pinned)
    end_run(settings.store, settings.epoch, clean=result.succeeded)


def _first_run(machine: SimulatedPosix) -> None:
    _run(machine, _TOPICS, _BY_TOPIC)


def _run_with_others(machine: SimulatedPosix) -> str:
    """After a run that was recorded the other settings are refused; else they count, and nothing was published."""
    by_topic = read_settings(_WORLD.store(machine)).settings == {"source.dataset": "topic"}
    if by_topic:
        require_refused([partial(_run, machine, _PARTITIONS, _BY_PARTITION)], ConfigurationError)
        _first_run(machine)
        return _WORLD.violation(machine, _TOPICS, {})
    _run(machine, _PARTITIONS, _BY_PARTITION)
    return _WORLD.violation(machine, _PARTITIONS, {})


SETTINGS = (Program("settings", _empty_store, _first_run, _run_with_others),)
