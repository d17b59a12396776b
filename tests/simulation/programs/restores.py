"""Programs for the crash explorer: the output or a bucket's log is restored to before the crashed run, or emptied,
or truncated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import DistcommitError, LostError, LostTailError, StaleStoreError
from distcommit.core.records.log_records import DatasetState, Intent, Record
from distcommit.protocol.paths.shared_names import bucket_name
from distcommit.protocol.paths.store import SEGMENT_SUFFIX
from distcommit.stores.history.retention import Retention
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, files_below, new_machine, replace_files
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World

WORLD = World(buckets=2)
BEFORE = ModelSource({"a": ModelDataset({"0": 2}), "g": ModelDataset({"0": 1})})
THEN = ModelSource({"a": ModelDataset({"0": 4}, units=2), "g": ModelDataset({"0": 2})})
AFTER = ModelSource({"a": ModelDataset({"0": 5}), "g": ModelDataset({"0": 3})})
LOG_OF_A = f"{ROOTS.store}/log/{bucket_name(1)}"
_PARTITIONS = 2
_REPARTITIONED = tuple(replace(WORLD, partitions=each, kept=Retention(tables=1)) for each in (3, 1, _PARTITIONS))


@cache
def _before(partitions: int) -> SimulatedPosix:
    machine = new_machine()
    replace(WORLD, partitions=partitions).run(machine, BEFORE)
    machine.syncfs("/")
    return machine


@cache
def _ended() -> SimulatedPosix:
    """End runs so long ago that no log records the published files: only the output's run markers do."""
    machine = _before(1).after_kill()
    _act(1, machine)
    logs = [WORLD.store(machine).bucket_log(bucket) for bucket in range(WORLD.buckets)]
    while any(isinstance(record, Intent) for log in logs for record in _records(log)):
        _act(1, machine)
    machine.syncfs("/")
    return machine


def _records(log: CommitLog) -> list[Record]:
    return [segment.record for _, segment in log.segments() if not isinstance(segment, DistcommitError)]


def run_after_a_restore(machine: SimulatedPosix, worlds: Sequence[World] = (WORLD,)) -> str:
    """Run once more on partly restored folders, in each of these worlds, and return a violation.

    The run is refused, or names the bucket with the lost tail and publishes nothing twice, or quarantines what it
    cannot prove, or nothing was lost. A rebuild repairs such a bucket.
    """
    for number, world in enumerate(worlds):
        source = ModelSource({**AFTER.datasets, "g": ModelDataset({"0": 3 + number})})
        try:
            result = world.run(machine, source)
        except StaleStoreError:
            return ""
        if result.succeeded:
            return world.violation(machine, source, {})
        kinds = {reason.kind for reason in result.reasons.entries}
        if kinds == {
            LostError.id,
            "skipped, quarantined",
        }:  # sealed files, published and lost by the restore
            return ""
        if kinds != {LostTailError.id, "not fenced"}:
            return f"the run did not succeed: {result.reasons.entries}"
    store = world.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    if not rebuild_store(store, plan, "rebuild", "person", accept_gaps=False).written:
        return f"a bucket with a lost tail cannot be rebuilt: {plan}"
    world.run(machine, source)
    return world.violation(machine, source, {})


def _put_back(root: str, machine: SimulatedPosix) -> str:
    replace_files(machine, root, files_below(_before(1), root))
    return run_after_a_restore(machine)


def _cut_and_repartition(machine: SimulatedPosix) -> str:
    """Truncate the log before its last sealed sequence.

    The following runs have other numbers of partitions, and keep the tables of one run only.
    """
    segments = sorted(
        (path, data) for path, data in files_below(machine, LOG_OF_A).items() if path.endswith(SEGMENT_SUFFIX)
    )
    sealed = max(path for path, data in segments if isinstance(decode_segment(data, path).record, Intent))
    for path, _ in segments:
        if path >= sealed:
            machine.unlink(path)
    return run_after_a_restore(machine, _REPARTITIONED)


def _empty_output(machine: SimulatedPosix) -> str:
    replace_files(machine, ROOTS.output, {})
    try:
        WORLD.run(machine, AFTER)
    except StaleStoreError:
        return ""
    return "a run begins on an output that was emptied"


def _delete_published_files(machine: SimulatedPosix) -> str:
    """Delete files that ended runs have published: nothing is reported, and nothing is read again."""
    for path in files_below(_before(1), ROOTS.output):
        if path.endswith(".parquet"):
            machine.unlink(path)
    result = WORLD.run(machine, AFTER)
    audit = audit_store(WORLD.store(machine), AFTER.provenance, deep=False)
    if not result.succeeded or audit.records != 5 or audit.duplicates:
        return f"after files were deleted: {result.reasons.entries}, {audit}"
    return ""


def _unmount_staging(machine: SimulatedPosix) -> str:
    """Hide the staging folder from one run, which is refused if it needs it, then show it again."""
    store, staged = WORLD.store(machine), files_below(machine, ROOTS.staging)
    is_pending = any(state.open for bucket in range(WORLD.buckets) for state in _states(store.bucket_log(bucket)))
    replace_files(machine, ROOTS.staging, {})
    try:
        WORLD.run(machine, THEN)
        if is_pending:
            return "a run begins though pending files were staged elsewhere"
    except StaleStoreError:
        replace_files(machine, ROOTS.staging, staged)
    result = WORLD.run(machine, AFTER)
    return WORLD.violation(machine, AFTER, {}) if result.succeeded else f"it does not succeed: {result.reasons.entries}"


def _states(log: CommitLog) -> list[DatasetState]:
    return [*log.refresh().datasets.values()]


def _act(partitions: int, machine: SimulatedPosix) -> None:
    replace(WORLD, partitions=partitions).run(machine, THEN)


def _program(name: str, recover: Callable[[SimulatedPosix], str], partitions: int = 1) -> Program:
    return Program(name, lambda: _before(partitions).after_kill(), partial(_act, partitions), recover)


RESTORES = (
    _program("bucket-log-restored", partial(_put_back, LOG_OF_A)),
    _program("bucket-log-cut-repartitioned", _cut_and_repartition, _PARTITIONS),
    _program("output-restored", partial(_put_back, ROOTS.output)),
    _program("output-emptied", _empty_output),
    *(
        Program(f"{name}-idle", lambda: _ended().after_kill(), partial(_act, 1), recover)
        for name, recover in (("output-restored", partial(_put_back, ROOTS.output)), ("output-emptied", _empty_output))
    ),
    _program("staging-unmounted", _unmount_staging),
    _program("published-files-deleted", _delete_published_files),
)
