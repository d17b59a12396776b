"""Programs for the crash explorer: a store is rebuilt beside a commit or an abandon of an older run, killed between any
two effects.

The rebuild itself is killed after that. The store is a copy from when one file of a sequence was published. A later run
began, which that copy does not contain.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.core.errors import StaleStoreError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.driver.run import new_run_id
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, half_done, new_machine, require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD = World()
_MORE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
_EFFECTS = (1, 2, 3)
"""Numbers of file changes after which an act dies, beside the explorer's own crashes."""


def _half_done(*, quarantined: bool) -> SimulatedPosix:
    """Let a run die in its commit, with one file published."""
    machine = new_machine()
    half_done(machine, _WORLD)
    store = _WORLD.store(machine)
    for state in store.bucket_log(0).refresh().pending() if quarantined else ():
        operator_actions.quarantine(store, state.sequence.dataset_urn, "person")
    machine.syncfs("/")
    return machine


def _abandons(machine: SimulatedPosix) -> None:
    store = _WORLD.store(machine)
    for urn, state in sorted(store.bucket_log(0).refresh().datasets.items()):
        if state.status is not DatasetStatus.IDLE:
            operator_actions.abandon(store, urn, "person")


def _commits(machine: SimulatedPosix) -> None:
    """Execute the steps of a zombie's sealed sequence."""
    store = _WORLD.store(machine)
    context = StepContext(store.fs, ROOTS.staging, ROOTS.output)
    pending = store.bucket_log(0).refresh().pending()
    steps = [step for state in pending for step in load_steps(state.sequence.steps, context)]
    files = [step.file for step in steps if isinstance(step, FsRenameCommitStep)]
    FsRenameCommitStep.execute_all(FsRenameCommitStep.of_all(context, files))


def _is_rebuilt(machine: SimulatedPosix) -> bool:
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    return 0 < marks[Marker.REBUILD] <= marks[Marker.CLEAN]


def _rebuild(machine: SimulatedPosix) -> None:
    """Rebuild as the command does, after a run that the store does not contain has begun."""
    store = _WORLD.store(machine)
    marks = read_markers(store.fs, ROOTS.output)
    if not marks[Marker.REBUILD]:
        put_run_marker(store.fs, ROOTS.output, max(marks.values()) + 1, Marker.BEGAN)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    done = rebuild_store(store, plan, new_run_id(), "person", accept_gaps=False)
    if not done.written:
        raise AssertionError(f"nothing was written: {done.problems}")


def _finish(machine: SimulatedPosix) -> str:
    """Require that no run begins before the store is rebuilt; then a run makes everything exact."""
    if not _is_rebuilt(machine):
        if read_markers(SimulatedFileSystem(machine), ROOTS.output)[Marker.REBUILD]:
            require_refused([partial(_WORLD.run, machine, _MORE)], StaleStoreError)
        _rebuild(machine)
    if not _WORLD.run(machine, _MORE).succeeded:
        return "the run after the rebuild does not succeed"
    return _WORLD.violation(machine, _MORE, {})


def _after(act: Callable[[SimulatedPosix], None], effects: int, *, quarantined: bool) -> SimulatedPosix:
    """Let the act die after that many changes of staged or published files."""
    machine, number = _half_done(quarantined=quarantined), count(1)

    def gate(operation: Operation) -> None:
        is_effect = operation.kind in ("rename", "unlink") and operation.path.startswith((ROOTS.output, ROOTS.staging))
        if is_effect and next(number) > effects:
            raise Crashed

    machine.gate = gate
    with suppress(Crashed):
        act(machine)
    machine.gate = None
    machine.syncfs("/")
    return machine


CONCURRENT_REBUILD = (
    Program("rebuilt-while-abandoned", partial(_half_done, quarantined=True), _abandons, _finish),
    Program("rebuilt-while-committed", partial(_half_done, quarantined=False), _commits, _finish),
    *(
        Program(
            f"rebuilt-after-{effects}-of-{name}", partial(_after, act, effects, quarantined=held), _rebuild, _finish
        )
        for name, act, held in (("an-abandon", _abandons, True), ("a-commit", _commits, False))
        for effects in _EFFECTS
    ),
)
