"""Maintenance units: work units that supersede published files of a dataset instead of reading the source.

One property of the work unit stores the kind and its arguments.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit

_KEY = "maintenance"


class MaintenanceKind(msgspec.Struct, frozen=True, tag_field="kind"):
    """The kind of a maintenance unit, with its arguments.

    Attributes:
        publishes_replacement: whether the unit's tombstone is a replacement, which stays until the next replacement.
    """

    publishes_replacement: ClassVar[bool]

    @classmethod
    def of(cls, unit: WorkUnit) -> Self | None:
        """Return the kind of a work unit if it is an object of this class; None for another kind and for other work
        units.
        """
        kind = maintenance_kind(unit)
        return kind if isinstance(kind, cls) else None

    def unit(self, urn: str, incarnation: str, records: int) -> WorkUnit:
        """Return a maintenance unit of this kind. The planner gives it an id."""
        empty = Watermark({}, incarnation)
        return WorkUnit("", urn, empty, empty, records, {_KEY: msgspec.json.encode(self).decode()})


class ReprocessedFiles(MaintenanceKind, frozen=True, tag="reprocess"):
    """Error files whose records are read again.

    Attributes:
        branch: the branch that rejected the records; empty for all branches.
        branches: all branches when the records were read; if `branch` is empty, all current branches.
        base: the dataset's done epoch when the unit was planned.
        epochs: epochs of the files, and of the files that their records were in before, if these were reprocessed and
            rejected again. The first is the epoch that read the oldest record.
        files: paths of live error files, below the output.
    """

    publishes_replacement: ClassVar[bool] = False

    branch: str
    branches: tuple[str, ...]
    base: int
    epochs: tuple[int, ...]
    files: tuple[str, ...]


class ExpiryCutoff(MaintenanceKind, frozen=True, tag="expire"):
    """An expiry, which supersedes published files that are older than a cutoff, without new files.

    Attributes:
        cutoff_ms: a file whose records ended at this time or earlier is expired; milliseconds since 1970.
        base: the dataset's done epoch when the unit was planned.
    """

    publishes_replacement: ClassVar[bool] = True

    cutoff_ms: int
    base: int = 0

    def is_expired(self, end_ms: int) -> bool:
        """Return whether a file is expired whose records ended at this time; never for 0, an unknown age."""
        return 0 < end_ms <= self.cutoff_ms


class CompactedFiles(MaintenanceKind, frozen=True, tag="compact"):
    """Small published files of one folder that are merged into one file.

    Attributes:
        branch: the branch of the files.
        base: the dataset's done epoch when the unit was planned.
        files: paths of live data files below the output, in the order in which their records are merged.
    """

    publishes_replacement: ClassVar[bool] = False

    branch: str
    base: int
    files: tuple[str, ...]


_KINDS: Any = ReprocessedFiles | ExpiryCutoff | CompactedFiles


def maintenance_kind(unit: WorkUnit) -> MaintenanceKind | None:
    """Return the kind of a maintenance unit; None for a work unit that reads the source."""
    text = unit.properties.get(_KEY)
    if text is None:
        return None
    kind: MaintenanceKind = from_json(text, _KINDS)
    return kind


def is_maintenance(unit: WorkUnit) -> bool:
    """Return whether a work unit is a maintenance unit. Such a unit is published as a whole or not at all, and its
    files are added even if the job's publisher replaces files.
    """
    return _KEY in unit.properties


def publishes_replacement(unit: WorkUnit) -> bool:
    """Return whether a work unit's own tombstone is a replacement."""
    kind = maintenance_kind(unit)
    return kind is not None and kind.publishes_replacement
