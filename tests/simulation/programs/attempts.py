"""Programs for the crash explorer: second attempts.

A task takes over from a dead one, sequences fail in one run after the other, and a decision outlives the runs that
could not execute it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from distcommit.core.dataset_urn import folder_of
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.log_watch import lost_files
from tests.simulation.programs.parts import (
    SOURCE,
    Meddling,
    Program,
    half_done,
    new_machine,
    planned,
    run_and_look,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import FILE_A_RECORD, ROOTS, World

_TASKS = World(buckets=2, files=FILE_A_RECORD)
_UNITS = ModelSource({"a": ModelDataset({"0": 3, "1": 1}, units=2), "b": ModelDataset({"0": 1})})


@cache
def _planned_run() -> tuple[SimulatedPosix, RunSettings]:
    machine = new_machine()
    settings = planned(machine, _TASKS, _UNITS)
    machine.syncfs("/")
    return machine, replace(settings, min_interval_s=0)


def _about_to_ingest() -> SimulatedPosix:
    return _planned_run()[0].after_kill()


def _on(machine: SimulatedPosix) -> RunSettings:
    return replace(_planned_run()[1], store=_TASKS.store(machine))


def _ingest(machine: SimulatedPosix) -> None:
    ingest_partition(_on(machine), 0)


def _ingest_badly(machine: SimulatedPosix) -> None:
    """Ingest by an attempt that cannot read one partition, and reports that before it dies."""
    settings = _on(machine)
    source = ModelSource({"a": replace(_UNITS.datasets["a"], fails=frozenset({"0"})), "b": _UNITS.datasets["b"]})
    ingest_partition(replace(settings, flow=replace(settings.flow, source=source)), 0)


def _take_over(machine: SimulatedPosix) -> str:
    """Run the task's second attempt, a late twin of the recovery, and the drain: the run completes by itself."""
    settings = _on(machine)
    ingest_partition(settings, 0)
    recover_partition(settings, 0)
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    report = drain_partition(settings, 0)
    records = sum(sum(dataset.partitions.values()) for dataset in _UNITS.datasets.values())
    published = (report.counts.datasets_published, report.counts.records_published, report.counts.files_published)
    if published != (len(_UNITS.datasets), records, records):
        return f"the run does not finish what its task had begun: {report}"
    return _TASKS.violation(machine, _UNITS, {})


def _reading_less_of(urn: str, calls: PosixCalls) -> RunSettings:
    """Return an attempt that commits once it has read everything, except a part of a dataset."""
    settings = replace(_planned_run()[1], store=_TASKS.store(calls), min_interval_s=1_000_000)
    source = ModelSource({**_UNITS.datasets, urn: replace(_UNITS.datasets[urn], short=1)})
    return replace(settings, flow=replace(settings.flow, source=source))


def _ingest_beside_a_twin(machine: SimulatedPosix) -> None:
    """As an attempt begins to write, its twin has begun, too, reads other parts, and dies before it commits."""

    def seals(name: str, arguments: tuple[Any, ...]) -> bool:
        return name == "open_new" and "/log/" in arguments[0]

    def stages(name: str, arguments: tuple[Any, ...]) -> bool:
        return name == "open_new" and arguments[0].startswith(f"{ROOTS.staging}/")

    def twin() -> None:
        with suppress(Crashed):
            ingest_partition(_reading_less_of("b", Meddling(machine, seals, _die).as_calls()), 0)

    ingest_partition(_reading_less_of("a", Meddling(machine, stages, twin).as_calls()), 0)


def _die() -> None:
    raise Crashed


def _read_the_rest(machine: SimulatedPosix) -> str:
    return run_and_look(machine, _TASKS, _UNITS)


_STUBBORN = World(max_attempts=3)


def _without(machine: SimulatedPosix, name: str) -> PosixCalls:
    """Return a machine on which no file with that name's end can be published in dataset a."""

    def refuses(call: str, arguments: tuple[Any, ...]) -> bool:
        target = str(arguments[-1])
        return call == "rename_noreplace" and target.startswith(f"{ROOTS.output}/{folder_of('a')}") and name in target

    return Meddling(machine, refuses, *[_refuse] * 1000).as_calls()


def _refuse() -> None:
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def _failed_once() -> SimulatedPosix:
    """Publish one file of a sealed sequence; no other one can be published, and a run has failed to."""
    machine = new_machine()
    half_done(machine, _STUBBORN)
    _STUBBORN.run(_without(machine, ".parquet"), SOURCE)
    machine.syncfs("/")
    return machine


def _fail_again(machine: SimulatedPosix) -> None:
    _STUBBORN.run(_without(machine, ".parquet"), SOURCE)


def _fail_for_good(machine: SimulatedPosix) -> str:
    """Require that exactly as many runs fail as replay has attempts; then an operator retries the sequence."""
    store = _STUBBORN.store(machine)
    for _ in range(_STUBBORN.max_attempts):
        state = store.bucket_log(0).refresh().state_of("a")
        quarantined = state.status is DatasetStatus.QUARANTINED
        if quarantined is not (len(state.tried_epochs) == _STUBBORN.max_attempts):
            return f"after {len(state.tried_epochs)} of {_STUBBORN.max_attempts} attempts it is {state.status.value}"
        if quarantined:
            break
        _fail_again(machine)
    else:
        return f"never quarantined: {store.bucket_log(0).refresh().state_of('a')}"
    if wrong := lost_files(store):
        return wrong
    operator_actions.retry(store, "a", "person")
    return run_and_look(machine, _STUBBORN, SOURCE)


_WHOLE_JOB = World(job_level=True, max_attempts=100)


def _decided() -> SimulatedPosix:
    """Decide a `scope: job` job whose driver died after one published file, and whose next run could publish no
    more."""
    machine = new_machine()
    half_done(machine, _WHOLE_JOB)
    _publish_nothing(machine)
    machine.syncfs("/")
    return machine


def _publish_nothing(machine: SimulatedPosix) -> None:
    _WHOLE_JOB.run(_without(machine, ".parquet"), SOURCE)


def _publish_at_last(machine: SimulatedPosix) -> str:
    """Require that the decision holds for any number of runs, and longer than the segments it was written in."""
    for _ in range(2):
        _publish_nothing(machine)
    store = _WHOLE_JOB.store(machine)
    held = [state.sequence.epoch for state in store.bucket_log(0).refresh().pending() if state.held]
    if not held or not {*held} <= store.job_log().refresh().decided_epochs:
        return f"the decision on {held} is forgotten"
    return run_and_look(machine, _WHOLE_JOB, SOURCE)


ATTEMPTS = (
    Program("second-attempt", _about_to_ingest, _ingest, _take_over),
    Program("attempt-after-failure", _about_to_ingest, _ingest_badly, _take_over),
    Program("unlike-attempts", _about_to_ingest, _ingest_beside_a_twin, _read_the_rest),
    Program("fails-for-good", _failed_once, _fail_again, _fail_for_good),
    Program("decided", _decided, _publish_nothing, _publish_at_last),
)
