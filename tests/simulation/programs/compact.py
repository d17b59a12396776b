"""Programs for the crash explorer: small files are compacted, killed anywhere, abandoned halfway, with a lost store,
and before late records."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.app.reading.snapshot_reader import read_store
from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from distcommit.pipeline.maintenance.published_files import PublishedFiles
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, files_below, new_machine, staged, unsettled
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

COMPACTED = World(max_attempts=1)
SMALL_FILES = CompactionPolicy(target_file_bytes=1 << 20, min_files=2, closed_before_ms=1 << 62)


def growing_source(end: int) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": end, "1": 1}, units=2), "b": ModelDataset({"0": end})})


_FIRST, _SECOND, _THIRD = growing_source(1), growing_source(3), growing_source(4)


def _initial_machine() -> SimulatedPosix:
    machine = new_machine()
    for source in (_FIRST, _SECOND):
        if not COMPACTED.run(machine, source).succeeded:
            raise AssertionError("nothing is published")
    machine.syncfs("/")
    return machine


def compact(machine: SimulatedPosix) -> None:
    """Compact as `app.admin.compact` does."""
    if not COMPACTED.compact(machine, _SECOND, SMALL_FILES).succeeded:
        raise DistcommitError("small files cannot be compacted")


def _wrong(machine: SimulatedPosix, source: ModelSource, *, files: int = 0, is_deleted: bool = False) -> str:
    """Return a violation: a snapshot reader gets each record once, and the audit is exact.

    Args:
        files: the required number of live files of each dataset; 0 for any.
        is_deleted: whether no superseded file may be left.
    """
    store = COMPACTED.store(machine)
    audit = audit_store(store, source.provenance, deep=True)
    ends = {urn: dict(dataset.partitions) for urn, dataset in source.datasets.items()}
    reached = {urn: dict(watermark.positions) for urn, watermark in COMPACTED.watermarks(machine).items()}
    records = sum(sum(partitions.values()) for partitions in ends.values())
    if not audit.exact or audit.records != records or reached != ends:
        return f"watermarks are {reached}, expected {ends}: {audit}"
    snapshot = read_store(store, ROOTS.output, MAIN_BRANCH, None, None)
    for urn, partitions in ends.items():
        table = snapshot.to_arrow(urn)
        rows = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        expected = [(partition, offset) for partition, end in sorted(partitions.items()) for offset in range(end)]
        if rows != expected:
            return f"a reader gets {rows} of {urn}, expected {expected}"
        done = stored_states(store)[urn].done_epoch
        live = list(PublishedFiles(store.fs, ROOTS.output, urn, done).live_in(MAIN_BRANCH))
        if files and len(live) != files:
            return f"{urn} has {len(live)} live files, expected {files}"
    if is_deleted and audit.superseded_files:
        return f"{audit.superseded_files} superseded files are left"
    remaining = staged(machine)
    return f"left behind in task output: {remaining}" if remaining else ""


def _compact_again(machine: SimulatedPosix) -> str:
    """Require that the repeated command finishes; then that runs delete the old files, and late records are added."""
    compact(machine)
    return _wrong(machine, _SECOND, files=1) or _deleted_and_more(machine)


def _deleted_and_more(machine: SimulatedPosix) -> str:
    for _ in range(2):
        COMPACTED.run(machine, _SECOND)
    return _wrong(machine, _SECOND, files=1, is_deleted=True) or _more(machine)


def _more(machine: SimulatedPosix) -> str:
    """Add records, and compact the merged file with the new one."""
    COMPACTED.run(machine, _THIRD)
    if wrong := _wrong(machine, _THIRD):
        return wrong
    compact(machine)
    COMPACTED.run(machine, _THIRD)
    COMPACTED.run(machine, _THIRD)
    return _wrong(machine, _THIRD, files=1, is_deleted=True)


def _run_instead(machine: SimulatedPosix) -> str:
    """Run instead of the command: runs finish the sealed sequences, and everything else is unchanged."""
    COMPACTED.run(machine, _SECOND)
    return _wrong(machine, _SECOND) or _compact_again(machine)


def _half_published(renames: int, *, is_done: bool = True) -> SimulatedPosix:
    """Let the command die after that many of its four renames: the tombstone and the file of each dataset.

    Args:
        is_done: whether it may record in the store what it has renamed.
    """
    machine, remaining = _initial_machine(), [renames]

    def gate(operation: Operation) -> None:
        is_published = operation.path.startswith(f"{ROOTS.output}/") and OWNERSHIP_FOLDER not in operation.path
        if operation.kind == "rename" and is_published:
            remaining[0] -= 1
        is_recorded = remaining[0] == 0 and operation.path.startswith(f"{ROOTS.store}/")
        if remaining[0] < 0 or (is_recorded and not is_done):
            raise Crashed

    machine.gate = gate
    with suppress(Crashed):
        compact(machine)
    machine.gate = None
    machine.syncfs("/")
    return machine


def _quarantined(renames: int, *, is_done: bool = True) -> SimulatedPosix:
    machine = _half_published(renames, is_done=is_done)
    operator_actions.quarantine(COMPACTED.store(machine), unsettled(machine).dataset_urn, "person")
    COMPACTED.run(machine, _SECOND)  # which must leave the files of the quarantined dataset
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix) -> None:
    operator_actions.abandon(COMPACTED.store(machine), unsettled(machine).dataset_urn, "person")


def _abandon_and_compact(machine: SimulatedPosix) -> str:
    while unsettled(machine).status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
        _abandon(machine)
    return _run_instead(machine)


def _without_store(machine: SimulatedPosix) -> SimulatedPosix:
    fs = SimulatedFileSystem(machine)
    owner = read_owner(fs, ROOTS.output)
    for path in files_below(machine, ROOTS.store):
        machine.unlink(path)
    open_store(fs, ROOTS, "job", COMPACTED.buckets, create=True, lost_store_id=owner.store_id if owner else "")
    machine.syncfs("/")
    return machine


def _rebuild(machine: SimulatedPosix) -> None:
    store = COMPACTED.store(machine)
    done = rebuild_store(
        store, plan_rebuild(store, stored_states(store), accept_gaps=False), "rebuild", "person", accept_gaps=False
    )
    if not done.written:
        raise AssertionError(f"nothing was written: {done.problems}")


def _rebuild_and_compact(machine: SimulatedPosix) -> str:
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    if not 0 < marks[Marker.REBUILD] <= marks[Marker.CLEAN]:
        _rebuild(machine)
    return _run_instead(machine)


def _compacted(*, runs_after: int) -> SimulatedPosix:
    machine = _initial_machine()
    compact(machine)
    for _ in range(runs_after):
        COMPACTED.run(machine, _SECOND)
    machine.syncfs("/")
    return machine


def _ingest(machine: SimulatedPosix) -> None:
    COMPACTED.run(machine, _SECOND)


def _ingest_again(machine: SimulatedPosix) -> str:
    return _deleted_and_more(machine)


COMPACT = (
    Program("compact", _initial_machine, compact, _compact_again),
    Program("compact-then-run", _initial_machine, compact, _run_instead),
    Program("compact-deleted", partial(_compacted, runs_after=0), _ingest, _ingest_again),
    *(
        Program(f"compact-abandoned-{renames}", partial(_quarantined, renames), _abandon, _abandon_and_compact)
        for renames in (1, 2, 3)
    ),
    Program("compact-abandoned-published", partial(_quarantined, 2, is_done=False), _abandon, _abandon_and_compact),
    *(
        Program(
            f"compact-half-rebuilt-{renames}",
            lambda renames=renames: _without_store(_half_published(renames)),  # type: ignore[misc]
            _rebuild,
            _rebuild_and_compact,
        )
        for renames in (1, 2, 3)
    ),
    *(
        Program(
            f"compact-rebuilt-{runs}",
            lambda runs=runs: _without_store(_compacted(runs_after=runs)),  # type: ignore[misc]
            _rebuild,
            _rebuild_and_compact,
        )
        for runs in (0, 2)
    ),
)
