"""Programs for the crash explorer: operator actions on jobs of several buckets, or of `scope: job`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.launch_interface import Launch, Result
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.programs.parts import (
    ASIDE,
    SOURCE,
    Program,
    half_done,
    new_machine,
    require_refused,
    run_and_look,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World

_HELD = World(job_level=True)


def _held() -> SimulatedPosix:
    """Hold sequences without a decision: the run died before."""
    machine = new_machine()
    _HELD.store(machine)

    def dying(launch: Launch) -> Launch:
        def launched(
            function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
        ) -> list[Result]:
            results = launch(function, settings, tasks, kind)
            if function is drain_partition:
                raise Crashed
            return results

        return launched

    with suppress(Crashed):
        _HELD.run(machine, SOURCE, launched=dying)
    machine.syncfs("/")
    return machine


def _refuse_held(machine: SimulatedPosix) -> None:
    """Require that held, undecided sequences cannot be quarantined or released: the next run drops them."""
    store = _HELD.store(machine)
    for state in store.bucket_log(0).refresh().pending():
        urn = state.sequence.dataset_urn
        require_refused(
            (
                partial(operator_actions.quarantine, store, urn, "person"),
                partial(operator_actions.retry, store, urn, "person"),
            )
        )


def _run_held(machine: SimulatedPosix) -> str:
    _refuse_held(machine)
    return run_and_look(machine, _HELD, SOURCE)


_TWO = World(buckets=2, max_attempts=1)
_FIRST_SEGMENT = f"{ROOTS.store}/log/bucket=00000/000000000001.seg"


def _one_unreadable() -> SimulatedPosix:
    """Quarantine datasets of one bucket; the other bucket's log is unreadable, as its first segment is moved aside."""
    machine = new_machine()
    half_done(machine, _TWO, moved=0)
    store = _TWO.store(machine)
    for bucket in range(store.buckets):
        for state in store.bucket_log(bucket).refresh().datasets.copy().values():
            if state.status is DatasetStatus.PENDING:
                operator_actions.quarantine(store, state.dataset_urn, "person")
    machine.rename_noreplace(_FIRST_SEGMENT, ASIDE)
    machine.syncfs("/")
    return machine


def _retry_all(machine: SimulatedPosix) -> None:
    """Require that readable datasets are released, and unreadable ones reported."""
    done = operator_actions.retry_all(_TWO.store(machine), "person")
    if [*done.unreadable] != ["bucket 0"]:
        raise AssertionError(f"the unreadable bucket is not reported: {done}")


def _retry_all_and_run(machine: SimulatedPosix) -> str:
    _retry_all(machine)
    machine.rename_noreplace(ASIDE, _FIRST_SEGMENT)
    operator_actions.retry_all(_TWO.store(machine), "person")
    return run_and_look(machine, _TWO, SOURCE)


RELEASED = (
    Program("held", _held, _refuse_held, _run_held),
    Program("retry-all", _one_unreadable, _retry_all, _retry_all_and_run),
)
