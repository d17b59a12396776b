"""Reprocessing of error files, through the current flow but only into the branch that had rejected them, because others
have published their copies.

A record that would go to another branch is rejected again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered
from distcommit.core.interfaces.source import Extraction, SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.maintenance_units import ReprocessedFiles
from distcommit.core.work_units import ERRORS, MAIN_BRANCH, BranchResult, DatasetPlan, SkippedRange, WorkUnit
from distcommit.pipeline.branches.error_columns import given_records
from distcommit.pipeline.maintenance.maintenance_source import MaintenanceExtraction, MaintenanceSource, plan_of
from distcommit.pipeline.maintenance.published_files import LiveFile, PublishedFiles
from distcommit.sinks.files.footer import Footer, read_batches, read_published_footer, read_written_schema
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import SupersededFile, Tombstone, build_tombstone


@dataclass(frozen=True, slots=True)
class ReprocessSource(MaintenanceSource):
    """Reprocessing of one dataset or all idle ones.

    Attributes:
        dataset_urn: URN of the dataset; empty for all.
    """

    dataset_urn: str = ""

    def candidates(self, states: SourceState) -> Iterable[DatasetState]:
        if not self.dataset_urn:
            return MaintenanceSource.candidates(self, states)
        return (states.get(self.dataset_urn) or DatasetState(self.dataset_urn),)

    def plan_dataset(self, state: DatasetState) -> DatasetPlan | None:
        """Plan to reprocess a dataset's live error files.

        The error files are grouped into maintenance units by the branch that had rejected the records and by the
        incarnation of the source. If the source's positions count the records read, they are also grouped by epoch.

        Raises:
            ConfigurationError: if a branch no longer exists, or if `dataset_urn` is set and that dataset has nothing to
                reprocess.
            DistcommitError: if a tombstone or footer cannot be read.
        """
        units = self._units(state) if state.watermark is not None else ()
        if units:
            return plan_of(state, *units)
        if self.dataset_urn:
            actual = "no watermark" if state.watermark is None else "no live error file"
            raise _nothing_to_reprocess(state.dataset_urn, actual)
        return None

    def extraction(self, unit: WorkUnit) -> Extraction:
        return _ErrorFilesExtraction(self, unit)

    def _units(self, state: DatasetState) -> tuple[WorkUnit, ...]:
        names = tuple(branch.name for branch in self.flow.branches)
        counts_reading = self.provenance is not None and self.provenance.counts_reading
        groups: dict[tuple[str, str, tuple[str, ...], int], list[LiveFile]] = {}
        for file in PublishedFiles(self.fs, self.output, state.dataset_urn, state.done_epoch).live_in(ERRORS):
            footer = file.footer
            if footer.kind != "rejected" or not footer.records:
                continue
            branch = "" if footer.branch == MAIN_BRANCH else footer.branch
            if branch and branch not in names:
                raise ConfigurationError(
                    "an error file belongs to a branch that is not in the job file",
                    id="BRANCH_MISSING",
                    dataset=state.dataset_urn,
                    path=file.path,
                    expected=f"one of {', '.join(names)}",
                    found=branch,
                    todo="put the branch back into the job file",
                )
            read_epoch = min(_epochs(footer)) if counts_reading else 0  # these are comparable only within an epoch
            key = footer.incarnation, branch, footer.branches if branch else names, read_epoch
            groups.setdefault(key, []).append(file)
        return tuple(
            _reprocessed(branch, branches, state.done_epoch, files).unit(
                state.dataset_urn, incarnation, sum(file.footer.records for file in files)
            )
            for (incarnation, branch, branches, _), files in groups.items()
        )


def _reprocessed(branch: str, branches: tuple[str, ...], base: int, files: Sequence[LiveFile]) -> ReprocessedFiles:
    epochs = tuple(sorted({epoch for file in files for epoch in _epochs(file.footer)}))
    return ReprocessedFiles(branch, branches, base, epochs, tuple(file.path for file in files))


def _epochs(footer: Footer) -> tuple[int, ...]:
    return (footer.epoch, *footer.replaces)


def _nothing_to_reprocess(urn: str, actual: str) -> ConfigurationError:
    return ConfigurationError(
        "the dataset has nothing to reprocess",
        id="MAINTENANCE_NOT_POSSIBLE",
        dataset=urn,
        expected="rejected records (on_rejected: divert) that were not reprocessed since",
        found=actual,
        todo="run `audit`: it lists the rejected records that can be reprocessed",
    )


class _ErrorFilesExtraction(MaintenanceExtraction):
    def __init__(self, source: ReprocessSource, unit: WorkUnit) -> None:
        super().__init__(source.flow, unit)
        self._source = source
        self._superseded, self._footers, self._bytes = list[SupersededFile](), list[Footer](), 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        reprocessed, fs = ReprocessedFiles.of(self.unit), self._source.fs
        for below in reprocessed.files if reprocessed is not None else ():
            path, records = f"{self._source.output}/{below}", 0
            footer, status = read_published_footer(fs, path), fs.status(path)
            if footer is None or status is None:
                raise FileNotFoundError(path)
            checksum, written = fs.checksum(path), read_written_schema(fs, path)
            for batch in read_batches(fs, path):
                records += batch.num_rows
                yield given_records(batch, written)
            if records != footer.records:
                raise CorruptError(
                    "an error file has another number of records than its footer states",
                    id="PUBLISHED_FILE_CORRUPT",
                    path=path,
                    expected=str(footer.records),
                    found=str(records),
                    todo="restore it from a backup",
                )
            self._bytes += status.size_bytes
            self._footers.append(footer)
            self._superseded.append(SupersededFile(below, status.size_bytes, f"{checksum:016x}", records))

    def bytes_read(self) -> int:
        return self._bytes

    def superseded_notes(self) -> tuple[Filtered, Sequence[SkippedRange]]:
        positions: dict[str, OffsetSets] = {}
        counts: dict[str, int] = {}
        holes: list[SkippedRange] = []
        for footer in self._footers:
            for branch, text in footer.filtered.items():
                positions.setdefault(branch, OffsetSets()).update(parsed(text))
            for construct, count in footer.filtered_by.items():
                counts[construct] = counts.get(construct, 0) + count
            named = parsed(footer.holes)
            holes += [
                SkippedRange(partition, low, high, "the source has no record there", True, footer.incarnation)
                for partition in named.partitions()
                for low, high in named.ranges(partition)
            ]
        return Filtered({branch: sets.to_text() for branch, sets in positions.items()}, counts), holes

    def tombstone(self, results: Sequence[BranchResult], identity: AttemptIdentity) -> Tombstone | None:
        reprocessed = ReprocessedFiles.of(self.unit)
        if reprocessed is None or not self._superseded:
            return None
        return msgspec.structs.replace(
            build_tombstone(identity, "append", reprocessed.base, (), self._superseded, ()),
            branch=reprocessed.branch,
            records_reprocessed=sum(file.records for file in self._superseded),
            records_written=sum(result.records_written for result in results),
            records_rejected=sum(result.records_rejected for result in results),
        )
