"""Programs for the crash explorer: a dataset that cannot be read is counted, stopped, restarted and read."""

from __future__ import annotations

from dataclasses import replace

from distcommit.core.records.read_failure_records import ReadFailure
from distcommit.protocol.seal_decision import RetryPolicy
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_RUNS = 2
_WORLD = World(stop_after_failed_runs=_RUNS, retry_across_runs=RetryPolicy.ALWAYS)
_BROKEN = ModelSource({**SOURCE.datasets, "a": replace(SOURCE.datasets["a"], fails=frozenset("1"))})
_MORE = ModelSource({"a": ModelDataset({"0": 5, "1": 4}), "b": ModelDataset({"0": 3})})


def _after(*sources: ModelSource) -> SimulatedPosix:
    machine = new_machine()
    for source in sources:
        _WORLD.run(machine, source)
    machine.syncfs("/")
    return machine


def _unread(machine: SimulatedPosix) -> ReadFailure | None:
    return _WORLD.store(machine).bucket_log(0).refresh().state_of("a").read_failure


def _fail_again(machine: SimulatedPosix) -> None:
    _WORLD.run(machine, _BROKEN)


def _stopped_and_restarted(machine: SimulatedPosix) -> str:
    """Require that the run after the crash counts the last failure, or finds it counted."""
    _WORLD.run(machine, _BROKEN)
    failure = _unread(machine)
    actual = failure and (failure.failed_runs, failure.stopped, failure.expected_high.positions)
    if actual != (_RUNS, True, {"0": 2, "1": 1}):
        return f"after {_RUNS} runs that failed, and one that died, there is {failure}"
    return _restart(machine)


def _restart(machine: SimulatedPosix) -> str:
    """Require that it is read up to its planned end automatically, then up to its end."""
    operator_actions.retry_all(_WORLD.store(machine), "person")
    if (failure := _unread(machine)) is not None and failure.stopped:
        return f"it was restarted, and is {failure}"
    _WORLD.run(machine, _MORE)
    reached = dict(_WORLD.watermarks(machine)["a"].positions)
    if reached not in ({"0": 2, "1": 1}, {"0": 5, "1": 4}):
        return f"it was to be read again up to 2 and 1, and was read up to {reached}"
    return run_and_look(machine, _WORLD, _MORE)


def _restart_and_read(machine: SimulatedPosix) -> None:
    operator_actions.retry(_WORLD.store(machine), "a", "person")
    _WORLD.run(machine, _MORE)


READ_FAILURES = (
    Program("read-failed", lambda: _after(_BROKEN), _fail_again, _stopped_and_restarted),
    Program("unread-released", lambda: _after(_BROKEN, _BROKEN), _restart_and_read, _restart),
)
