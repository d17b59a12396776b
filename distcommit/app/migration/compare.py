"""Compare a shadow run with the output of another job, or the positions of another system."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from distcommit.app.admin.rebuild import known_states
from distcommit.app.auditing.joined import Branches, folders_of
from distcommit.app.auditing.ledgers import open_ledgers
from distcommit.app.auditing.shared_positions import is_other
from distcommit.app.migration.positions import ForeignPositions
from distcommit.core.errors import ConfigurationError
from distcommit.core.provenance import Provenance
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.notebook import NotebookTable
from distcommit.core.watermark import Position
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offsets import OffsetSets
from distcommit.stores.state.job_store import JobStore


class CompareRow(msgspec.Struct, frozen=True):
    """One partition: the next position of either side, and how far ours is ahead (behind, if negative). Of outputs also
    the numbers of offsets, passed by both, that both have published, and that only one has."""

    dataset: str
    partition: str
    ours: Position | None
    theirs: Position | None
    ahead: int
    both: int = 0
    only_ours: int = 0
    only_theirs: int = 0


class CompareResult(NotebookTable, msgspec.Struct):
    """The result of a comparison."""

    same: bool
    """Whether all positions are equal; of outputs: whether both have all datasets, and each offset that both have
    passed, of which there must be some, is published by both."""
    other: str
    by_files: bool
    partitions: int
    differing: int
    rows: list[CompareRow]
    unreadable: list[str]


def compare_positions(store: JobStore, found: ForeignPositions) -> CompareResult:
    """Compare our watermarks with the positions of another system. What that system does not know is not compared."""
    states = known_states(store)
    rows: list[CompareRow] = []
    for urn, theirs in sorted(found.datasets.items()):
        ours = _positions(states.get(urn))
        rows += [_row(urn, partition, ours.get(partition), theirs[partition]) for partition in _sorted(theirs)]
    differing = sum(1 for row in rows if row.ours != row.theirs)
    return CompareResult(not differing, found.origin, False, len(rows), differing, rows, found.left_out)


def require_offsets(provenance: Provenance | None) -> None:
    """Check that outputs can be compared. Raises ConfigurationError if the source's records have no offsets."""
    if provenance is None:
        raise ConfigurationError(
            "what two jobs have published is compared by the offsets in their files",
            id="OFFSETS_NOT_RECORDED",
            expected="a source with offsets",
            todo="compare what `distcommit status --json` has of both, or the tables themselves",
        )


def compare_outputs(store: JobStore, flow: TaskFlow, other: JobStore, other_flow: TaskFlow) -> CompareResult:
    """Compare what two jobs have published of the offsets that both have passed, by the footers of files and the
    ledgers of targets.

    Offsets that a side has not passed, as it began later or is behind, are not compared. Offsets of a recreated source
    are compared in the newest incarnation that each has read. If these differ, nothing is compared, and the partition
    counts as differing.
    """
    unreadable: list[str] = []
    ours_known, theirs_known = known_states(store), known_states(other)
    mine = _published(store, flow, ours_known, unreadable)
    theirs = _published(other, other_flow, theirs_known, unreadable)
    rows: list[CompareRow] = []
    alone = 0
    for urn in sorted(ours_known.keys() | theirs_known.keys()):
        ours, others = ours_known.get(urn), theirs_known.get(urn)
        positions, other_positions = _positions(ours), _positions(others)
        for partition in _sorted({**positions, **other_positions}):
            row = _row(urn, partition, positions.get(partition), other_positions.get(partition))
            if is_other(_incarnation(ours), _incarnation(others)):
                alone += 1
            elif ours is not None and others is not None and isinstance(row.ours, int) and isinstance(row.theirs, int):
                low = max(_first(ours, partition), _first(others, partition))
                window = OffsetSets()
                window.add_range(partition, low, min(row.ours, row.theirs))
                a = mine.get(urn, OffsetSets()).intersection(window)
                b = theirs.get(urn, OffsetSets()).intersection(window)
                row = msgspec.structs.replace(
                    row,
                    both=a.intersection(b).count(),
                    only_ours=a.difference(b).count(),
                    only_theirs=b.difference(a).count(),
                )
            else:
                alone += 1
            rows.append(row)
    differing = alone + sum(1 for row in rows if row.only_ours or row.only_theirs)
    same = not differing and not unreadable and any(row.both for row in rows)
    return CompareResult(same, f"job {other.job}", True, len(rows), differing, rows, unreadable)


def _published(
    store: JobStore, flow: TaskFlow, known: dict[str, DatasetState], unreadable: list[str]
) -> dict[str, OffsetSets]:
    """Return by dataset the input records whose end the live files, a replacement or the ledgers state."""
    found: dict[str, OffsetSets] = {}
    with open_ledgers(flow, store) as ledgers:
        unreadable += ledgers.unreadable
        for folder in folders_of(store, ledgers):
            unreadable += folder.unusable
            rows = [each.row for each in ledgers.of(folder.name)]
            urn = folder.dataset_urn or next((row.dataset_urn for row in rows), "")
            state = known.get(urn)
            done_epoch = state.done_epoch if state is not None else 0
            branches = Branches(folder.live(done_epoch), rows, folder.replaced(done_epoch))
            for incarnation in branches.incarnations():
                if is_other(incarnation, _incarnation(state)):
                    continue  # of the source before it was made again, with offsets of its own
                joined = branches.joined(incarnation)
                found.setdefault(urn, OffsetSets()).update(joined.covered.difference(joined.holes))
    return found


def _row(urn: str, partition: str, ours: Position | None, theirs: Position | None) -> CompareRow:
    ahead = ours - theirs if isinstance(ours, int) and isinstance(theirs, int) else 0
    return CompareRow(urn, partition, ours, theirs, ahead)


def _positions(state: DatasetState | None) -> dict[str, Position]:
    return dict(state.watermark.positions) if state is not None and state.watermark is not None else {}


def _incarnation(state: DatasetState | None) -> str:
    return state.watermark.incarnation if state is not None and state.watermark is not None else ""


def _first(state: DatasetState, partition: str) -> int:
    first = state.origin.get(partition, 0)
    return first if isinstance(first, int) else 0


def _sorted(partitions: Iterable[str]) -> list[str]:
    return sorted(partitions, key=lambda name: (len(name), name))
