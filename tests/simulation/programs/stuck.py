"""Programs for the crash explorer: unfinishable sequences, by their own fault or by an outage, and held-back whole
jobs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from distcommit.app.inspection.job_status import NextRun, read_status
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.protocol.paths.temporary_and_probes import OUTPUT_PROBE
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Fault, FaultyCalls
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, half_done, new_machine, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World

_WORLD = World(max_attempts=2)
_JOB = World(buckets=2, job_level=True)
_BEFORE = ModelSource({"a": ModelDataset({"0": 1, "1": 1})})
_ODD = ModelSource({**SOURCE.datasets, "odd": ModelDataset({"0": 1}, problem="no such topic")})
_EVER = 1_000_000


def _failing(machine: SimulatedPosix, code: int, concerns: Callable[[str, tuple[Any, ...]], bool]) -> PosixCalls:
    """Return the machine on which such calls fail."""
    return cast(PosixCalls, FaultyCalls(machine, Fault(code, 0, _EVER, concerns=concerns)))


def _publishes(name: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether the call moves something into the output, except the job's run markers."""
    into = str(arguments[1]) if name == "rename_noreplace" else ""
    return into.startswith(f"{ROOTS.output}/") and OWNERSHIP_FOLDER not in into


def _publishes_a_dataset(name: str, arguments: tuple[Any, ...]) -> bool:
    return _publishes(name, arguments) and OUTPUT_PROBE not in str(arguments[1])


def _pending() -> SimulatedPosix:
    machine = new_machine()
    half_done(machine, _WORLD, moved=0)
    machine.syncfs("/")
    return machine


def _fail_for_good(machine: SimulatedPosix) -> None:
    """Run while no dataset can be published, and everything else works."""
    for _ in range(_WORLD.max_attempts):
        _WORLD.run(_failing(machine, errno.EACCES, _publishes_a_dataset), SOURCE)
    operator_actions.retry_all(_WORLD.store(machine), "person")


def _retry_all_and_run(machine: SimulatedPosix) -> str:
    operator_actions.retry_all(_WORLD.store(machine), "person")
    return run_and_look(machine, _WORLD, SOURCE)


def _outage(machine: SimulatedPosix) -> None:
    """Run more often than there are attempts while nothing at all can be published; then run once normally."""
    for _ in range(_WORLD.max_attempts + 1):
        _WORLD.run(_failing(machine, errno.EDQUOT, _publishes), SOURCE)
    _WORLD.run(machine, SOURCE)


def _interruption_is_not_blamed(machine: SimulatedPosix) -> str:
    for row in read_status(_WORLD.store(machine)).datasets:
        if row.status == "quarantined" or row.failed_runs:
            return f"an outage counts as an attempt: {row}"
    return run_and_look(machine, _WORLD, SOURCE)


# -- whole jobs


def _committed_before(world: World = _JOB) -> SimulatedPosix:
    machine = new_machine()
    world.run(machine, _BEFORE)
    machine.syncfs("/")
    return machine


def _published(machine: SimulatedPosix) -> set[str]:
    return {
        path for _, path, data in machine.files() if path.startswith(f"{ROOTS.output}/") and path.endswith("parquet")
    }


def _held_back(machine: SimulatedPosix, source: ModelSource, calls: PosixCalls | None = None) -> None:
    """Run once, and require that it publishes nothing.

    Raises:
        AssertionError: if it does, or does not report why.
    """
    before = _published(machine)
    result = _JOB.run(calls or machine, source)
    if result.decided or not result.reasons.entries or _published(machine) - before:
        raise AssertionError(f"a part of a job is published, or not reported: {result}")


def _with_an_odd_dataset(machine: SimulatedPosix) -> None:
    _held_back(machine, _ODD)


def _with_an_unreadable_bucket(machine: SimulatedPosix) -> None:
    for call in ("scandir", "read_file"):
        concerns = partial(_in_bucket, call)
        _held_back(machine, SOURCE, _failing(machine, errno.EIO, concerns))


def _in_bucket(call: str, name: str, arguments: tuple[Any, ...]) -> bool:
    return name == call and "/log/bucket=00000" in str(arguments[0])


def _quarantined() -> SimulatedPosix:
    """Quarantine a dataset of a job that continues with `scope: job` runs."""
    machine, world = _committed_before(), replace(_JOB, job_level=False, max_attempts=1)
    half_done(machine, world, moved=0)
    world.run(_failing(machine, errno.EACCES, _publishes_a_dataset), _BEFORE)
    machine.syncfs("/")
    return machine


def _with_a_quarantined_dataset(machine: SimulatedPosix) -> None:
    _held_back(machine, _ODD)
    operator_actions.retry_all(_JOB.store(machine), "person")


def _release_and_run(machine: SimulatedPosix) -> str:
    store = _JOB.store(machine)
    operator_actions.retry_all(store, "person")
    foretold = {row.dataset: row.next_run for row in read_status(store).datasets if row.status == "pending"}
    result = _JOB.run(machine, ModelSource({}))
    drops = sum(1 for next_run in foretold.values() if next_run in (NextRun.DROPS, NextRun.UNDECIDED))
    replays = sum(1 for next_run in foretold.values() if next_run is NextRun.REPLAYS)
    if (result.totals.sequences_dropped, result.totals.sequences_replayed) != (drops, replays):
        return f"status said {foretold}, the next run did {result.totals}"
    return run_and_look(machine, _JOB, SOURCE)


def _decided_long_ago() -> SimulatedPosix:
    """Publish a part of a decided job; the rest fails for so long that the job log gets a checkpoint."""
    machine = _committed_before()
    half_done(machine, _JOB, moved=1)
    log = _JOB.store(machine).job_log()
    decided = log.refresh().number
    while log.refresh().last_checkpoint <= decided:
        _fail_to_finish(machine)
    machine.syncfs("/")
    return machine


def _fail_to_finish(machine: SimulatedPosix) -> None:
    _JOB.run(_failing(machine, errno.EACCES, _publishes_a_dataset), _BEFORE)


def _retry_all_and_finish(machine: SimulatedPosix) -> str:
    operator_actions.retry_all(_JOB.store(machine), "person")
    return run_and_look(machine, _JOB, SOURCE)


STUCK = (
    Program("all-fail-for-good", _pending, _fail_for_good, _retry_all_and_run),
    Program("outage", _pending, _outage, _interruption_is_not_blamed),
    Program("job-level-unplannable", _committed_before, _with_an_odd_dataset, _release_and_run),
    Program("job-level-unreadable", _committed_before, _with_an_unreadable_bucket, _release_and_run),
    Program("job-level-quarantined", _quarantined, _with_a_quarantined_dataset, _release_and_run),
    Program("job-level-decided-long-ago", _decided_long_ago, _fail_to_finish, _retry_all_and_finish),
)
