"""Compare a shadow run with the output of another job, or the positions of another system."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.offsets.joined_branches import Branches, folders_of
from distcommit.app.auditing.offsets.shared_positions import is_other_incarnation
from distcommit.app.auditing.target_ledgers import open_ledgers
from distcommit.app.migration.foreign_positions import ForeignPositions
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.core.watermark import Position
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.stores.state.job_store import JobStore


class CompareRow(msgspec.Struct, frozen=True):
    """The comparison of one partition. Counts of offsets are 0 unless outputs are compared, and include only offsets
    that both sides have passed.

    Attributes:
        dataset: dataset URN.
        partition: partition of the source.
        position: our next position; None if we have none.
        other_position: next position of the other side; None if it has none.
        ahead: number of records by which ours is ahead (negative: behind); 0 if a position is missing or not an offset.
        positions_in_both: offsets that both sides have published.
        positions_only_here: offsets that only we have published.
        positions_only_there: offsets that only the other side has published.
    """

    dataset: str
    partition: str
    position: Position | None
    other_position: Position | None
    ahead: int
    positions_in_both: int = 0
    positions_only_here: int = 0
    positions_only_there: int = 0


class CompareResult(NotebookTable, msgspec.Struct):
    """The result of a comparison.

    Attributes:
        is_equal: whether all positions are equal. If outputs are compared: whether both have the same datasets and the
            same published offsets. Only offsets that both jobs have passed are compared; without any, the outputs are
            not equal.
        other: description of the other side, such as `job NAME`.
        is_by_files: whether outputs are compared, not only positions.
        partitions: number of compared partitions.
        differing: number of partitions that differ.
        rows: compared partitions, by dataset URN.
        unreadable: files and ledgers that could not be read, or unused entries of the positions, each with the reason.
    """

    is_equal: bool
    other: str
    is_by_files: bool
    partitions: int
    differing: int
    rows: list[CompareRow]
    unreadable: list[str]


def compare_positions(store: JobStore, positions: ForeignPositions) -> CompareResult:
    """Compare our watermarks with the positions of another system. Datasets unknown to that system are skipped."""
    states = stored_states(store)
    rows: list[CompareRow] = []
    for urn, other_positions in sorted(positions.datasets.items()):
        ours = _positions(states.get(urn))
        rows += [
            _row(urn, partition, ours.get(partition), other_positions[partition])
            for partition in _sorted(other_positions)
        ]
    differing = sum(1 for row in rows if row.position != row.other_position)
    return CompareResult(not differing, positions.origin, False, len(rows), differing, rows, positions.skipped)


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
    """Compare the published offsets of two jobs, by the footers of files and the ledgers of targets.

    Only offsets that both jobs have passed are compared. If the source was recreated, the newest incarnation that each
    job has read is compared. A partition counts as different if these incarnations differ, or only one job has an
    offset in it.
    """
    unreadable: list[str] = []
    ours_known, theirs_known = stored_states(store), stored_states(other)
    published = _published(store, flow, ours_known, unreadable)
    other_published = _published(other, other_flow, theirs_known, unreadable)
    rows: list[CompareRow] = []
    alone = 0
    for urn in sorted(ours_known.keys() | theirs_known.keys()):
        state, other_state = ours_known.get(urn), theirs_known.get(urn)
        positions, other_positions = _positions(state), _positions(other_state)
        for partition in _sorted({**positions, **other_positions}):
            row = _row(urn, partition, positions.get(partition), other_positions.get(partition))
            if is_other_incarnation(_incarnation(state), _incarnation(other_state)):
                alone += 1
            elif (
                state is not None
                and other_state is not None
                and isinstance(row.position, int)
                and isinstance(row.other_position, int)
            ):
                low = max(_first(state, partition), _first(other_state, partition))
                window = OffsetSets()
                window.add_range(partition, low, min(row.position, row.other_position))
                a = published.get(urn, OffsetSets()).intersection(window)
                b = other_published.get(urn, OffsetSets()).intersection(window)
                row = msgspec.structs.replace(
                    row,
                    positions_in_both=a.intersection(b).count(),
                    positions_only_here=a.difference(b).count(),
                    positions_only_there=b.difference(a).count(),
                )
            else:
                alone += 1
            rows.append(row)
    differing = alone + sum(1 for row in rows if row.positions_only_here or row.positions_only_there)
    same = not differing and not unreadable and any(row.positions_in_both for row in rows)
    return CompareResult(same, f"job {other.job}", True, len(rows), differing, rows, unreadable)


def _published(
    store: JobStore, flow: TaskFlow, states: dict[str, DatasetState], unreadable: list[str]
) -> dict[str, OffsetSets]:
    published: dict[str, OffsetSets] = {}
    with open_ledgers(flow, store) as ledgers:
        unreadable += ledgers.unreadable
        for folder in folders_of(store, ledgers):
            unreadable += folder.unusable
            rows = [ledger.row for ledger in ledgers.of(folder.name)]
            urn = folder.dataset_urn or next((row.dataset_urn for row in rows), "")
            state = states.get(urn)
            done_epoch = state.done_epoch if state is not None else 0
            branches = Branches(folder.live_files(done_epoch), rows, folder.replaced(done_epoch))
            for incarnation in branches.incarnations():
                if is_other_incarnation(incarnation, _incarnation(state)):
                    continue  # of the source before it was made again, with offsets of its own
                joined = branches.joined(incarnation)
                published.setdefault(urn, OffsetSets()).update(joined.covered.difference(joined.holes))
    return published


def _row(urn: str, partition: str, position: Position | None, other_position: Position | None) -> CompareRow:
    ahead = position - other_position if isinstance(position, int) and isinstance(other_position, int) else 0
    return CompareRow(urn, partition, position, other_position, ahead)


def _positions(state: DatasetState | None) -> dict[str, Position]:
    return dict(state.watermark.positions) if state is not None and state.watermark is not None else {}


def _incarnation(state: DatasetState | None) -> str:
    return state.watermark.incarnation if state is not None and state.watermark is not None else ""


def _first(state: DatasetState, partition: str) -> int:
    first = state.origin.get(partition, 0)
    return first if isinstance(first, int) else 0


def _sorted(partitions: Iterable[str]) -> list[str]:
    return sorted(partitions, key=lambda name: (len(name), name))
