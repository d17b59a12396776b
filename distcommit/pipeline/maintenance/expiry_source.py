"""Expiry of published files by a tombstone without records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.core.interfaces.source import Extraction
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.maintenance_units import ExpiryCutoff
from distcommit.core.work_units import ERRORS, MAIN_BRANCH, BranchResult, DatasetPlan, WorkUnit
from distcommit.pipeline.maintenance.maintenance_source import MaintenanceExtraction, MaintenanceSource, plan_of
from distcommit.pipeline.maintenance.published_files import DatedFiles, LiveFile
from distcommit.protocol.paths.output import is_tombstone
from distcommit.stores.folders.tombstones import Tombstone, build_tombstone


class ExpirableFiles(DatedFiles):
    def live_files(self) -> Iterator[LiveFile]:
        """Yield live files and error files; raises DistcommitError or OSError."""
        return self.live_dated(MAIN_BRANCH, ERRORS)

    def expired(self, cutoff: ExpiryCutoff) -> Iterator[LiveFile]:
        return (file for file in self.live_files() if cutoff.is_expired(file.end_ms))

    def is_obsolete(self) -> bool:
        """Return whether the newest tombstone is an expiry whose files are deleted, so that an empty expiry
        should replace it. An expiry that names only its predecessor is not obsolete.

        Raises DistcommitError or OSError if a tombstone cannot be read.
        """
        for stone in self.replacements():
            named = [file.path for file in stone.files if not is_tombstone(file.path)]
            if stone.publish == "expire" and named:
                return all(self.fs.status(f"{self.output}/{path}") is None for path in named)
        return False


@dataclass(frozen=True, slots=True)
class ExpirySource(MaintenanceSource):
    """Expiry of all idle datasets.

    Attributes:
        cutoff_ms: latest end of expiring records, in milliseconds since 1970.
    """

    cutoff_ms: int

    def plan_dataset(self, state: DatasetState) -> DatasetPlan | None:
        if state.watermark is None:
            return None
        aged, cutoff = self.aged(state.dataset_urn, state.done_epoch), ExpiryCutoff(self.cutoff_ms, state.done_epoch)
        if next(aged.expired(cutoff), None) is None and not aged.is_obsolete():
            return None
        return plan_of(state, cutoff.unit(state.dataset_urn, state.watermark.incarnation, 1))

    def extraction(self, unit: WorkUnit) -> Extraction:
        return _AgedExtraction(self, unit)

    def aged(self, urn: str, done_epoch: int) -> ExpirableFiles:
        return ExpirableFiles(self.fs, self.output, urn, done_epoch, self.flow)


class _AgedExtraction(MaintenanceExtraction):
    def __init__(self, source: ExpirySource, unit: WorkUnit) -> None:
        super().__init__(source.flow, unit)
        self._source = source

    def tombstone(self, results: Sequence[BranchResult], identity: AttemptIdentity) -> Tombstone | None:
        cutoff = ExpiryCutoff.of(self.unit)
        if cutoff is None:
            return None
        aged = self._source.aged(self.unit.dataset_urn, cutoff.base)
        files, records = aged.superseded(aged.expired(cutoff), is_expired=True)
        return build_tombstone(identity, "expire", cutoff.base, (), files, records)
