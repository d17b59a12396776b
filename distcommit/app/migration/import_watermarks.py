"""Import watermarks of another system, so that the job continues where that system stopped."""

from __future__ import annotations

import msgspec

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.admin.set_watermarks import require_all_named, require_positions
from distcommit.app.migration.foreign_positions import ForeignPositions
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Position, Watermark
from distcommit.stores.operator.operator_actions import set_watermarks
from distcommit.stores.state.job_store import JobStore

_NAMED = 20


class ImportRow(msgspec.Struct, frozen=True):
    """The import of one dataset.

    Attributes:
        dataset: dataset URN.
        positions_before: stored positions by partition; empty without a stored watermark.
        positions_after: imported positions by partition.
        action: `set` (in a dry run: would be set), `same` (the dataset has this watermark already), or `kept` (it has
            another one).
    """

    dataset: str
    positions_before: dict[str, Position]
    positions_after: dict[str, Position]
    action: str


class ImportResult(msgspec.Struct):
    """The result of an import.

    Attributes:
        origin: description of the origin of the positions.
        dry_run: whether nothing was changed.
        datasets_set: number of datasets whose watermark was set, or would be.
        rows: imported datasets, by URN.
        skipped: positions that belong to no dataset of this job, or are invalid.
    """

    origin: str
    dry_run: bool
    datasets_set: int
    rows: list[ImportRow]
    skipped: list[str]


def import_watermarks(
    store: JobStore | None,
    source: Source,
    foreign_positions: ForeignPositions,
    user: str,
    *,
    overwrite: bool,
    dry_run: bool,
) -> ImportResult:
    """Set the watermarks of datasets that have none (with `overwrite`: of all), all datasets of a bucket in one log
    record. Can be repeated after a crash.

    Args:
        store: the job's store; None in a dry run before the store exists.
        overwrite: whether to set watermarks of datasets that have one. Otherwise the result lists them as skipped.
        dry_run: only return what would be set.

    Raises:
        ConfigurationError: if positions are invalid, or omit partitions that have one. Nothing was written.
        ConflictError: if a dataset has an open sequence (nothing was written), or changed meanwhile.
    """
    states = stored_states(store) if store is not None else {}
    busy = [
        urn for urn in foreign_positions.datasets if states.get(urn, DatasetState(urn)).status is not DatasetStatus.IDLE
    ]
    if busy:
        raise ConflictError(
            "datasets have sequences that are not done",
            id="IMPORT_WITH_OPEN_SEQUENCES",
            expected="all of them to be idle",
            found=", ".join(busy[:_NAMED]) + (f" and {len(busy) - _NAMED} more" if len(busy) > _NAMED else ""),
            todo="complete pending commits with `distcommit recover JOB.yaml`, release quarantined datasets, then"
            " import again; nothing was written",
        )
    require_positions(source, states, foreign_positions.datasets, foreign_positions.lines)
    unknown = {
        urn: states.get(urn, DatasetState(urn))
        for urn in foreign_positions.datasets
        if not foreign_positions.incarnations.get(urn)
    }
    incarnations = {**foreign_positions.incarnations, **source.incarnations(unknown)}
    rows: list[ImportRow] = []
    requested: dict[str, Watermark] = {}
    before: dict[str, Watermark | None] = {}
    for urn, positions in sorted(foreign_positions.datasets.items()):
        old = states[urn].watermark if urn in states else None
        stored = dict(old.positions) if old is not None else {}
        incarnation = incarnations.get(urn, "")
        same = old is not None and stored == positions and incarnation in ("", old.incarnation)
        action = "same" if same else "set" if overwrite or old is None else "kept"
        if action == "set":
            requested[urn], before[urn] = Watermark(dict(positions), incarnation), old
        rows.append(ImportRow(urn, stored, positions, action))
    require_all_named(states, {urn: mark.positions for urn, mark in requested.items()})
    if store is not None and not dry_run:
        set_watermarks(store, requested, before, user)
    return ImportResult(foreign_positions.origin, dry_run, len(requested), rows, foreign_positions.skipped)
