"""Compaction of published files.

A maintenance unit stages one file of a group's records, and a tombstone. Before the seal the merged file is read again
and compared with the inputs' footers. `tests/spec/replace_model.py` is the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.sink import AttemptIdentity, StagingArea
from distcommit.core.interfaces.source import Extraction, SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.maintenance_units import CompactedFiles
from distcommit.core.work_units import BranchResult, DatasetPlan, WorkUnit
from distcommit.pipeline.maintenance.compaction_candidates import Attempt, find_candidates
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy, compaction_groups, epochs_of
from distcommit.pipeline.maintenance.maintenance_source import MaintenanceExtraction, MaintenanceSource, plan_of
from distcommit.pipeline.maintenance.published_files import DatedFiles, LiveFile
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import attempt_named
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import Footer, has_columns_in_footer, look_into, read_batches, read_published_footer
from distcommit.sinks.files.merged_file import merged_footer, write_merged_file
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.folders.tombstones import SupersededFile, Tombstone, build_tombstone

_WHOLE_FILE_BYTES = 16 << 20  # of a merged file that is written, or read to compare it, from memory as a whole


@dataclass(frozen=True, slots=True)
class CompactionSource(MaintenanceSource):
    """Compaction of idle datasets.

    Attributes:
        policy: rule for which files are merged.
        datasets: URNs of datasets to compact; empty for all.
    """

    policy: CompactionPolicy
    datasets: tuple[str, ...] = ()

    def candidates(self, states: SourceState) -> Iterable[DatasetState]:
        if not self.datasets:
            return MaintenanceSource.candidates(self, states)
        return (states.get(urn) or DatasetState(urn) for urn in self.datasets)

    def plan_dataset(self, state: DatasetState) -> DatasetPlan | None:
        """Plan a maintenance unit for each group; raises DistcommitError or OSError."""
        groups = self.groups(state) if state.watermark is not None else []
        units = [_unit(state, files) for files in groups]
        return plan_of(state, *units) if units else None

    def live_sizes(self, state: DatasetState) -> list[int]:
        """Return the sizes of live data files without reading them; raises DistcommitError or OSError."""
        published = self._published(state)
        superseded = published.superseded_paths()
        ages = (published.size_and_end_ms(path) for path in published.listed() if path not in superseded)
        return [age[0] for age in ages if age is not None]

    def groups(self, state: DatasetState, *, reads_records: bool = True) -> list[list[LiveFile]]:
        """Return groups of files to merge, from the footers of small files.

        Args:
            reads_records: whether to compare columns of files that must be read as a whole (all but Parquet), or to
                treat them as equal.

        Raises:
            DistcommitError, OSError: if a tombstone, a footer or the columns of a file cannot be read.
        """
        published = self._published(state)
        paths, attempts = find_candidates(published, self.policy, self._target_file_bytes)
        if not paths:
            return []
        unsealed = read_markers(self.fs, self.output)[Marker.UNSEALED]  # such runs may have left files of no sequence
        files = [file for file in published.live_dated_among(paths) if min(epochs_of(file.footer)) > unsealed]
        keys = {file.path: self._key(file, attempts) for file in files}
        candidates = compaction_groups(files, self.policy, self._target_file_bytes, lambda file: keys[file.path])
        schemas = {
            file.path: self._columns(file)
            for group in candidates
            for file in group
            if reads_records or has_columns_in_footer(file.path)
        }
        columns = {path: b"" if _may_overflow(schema) else _columns_key(schema) for path, schema in schemas.items()}
        return compaction_groups(
            [file for group in candidates for file in group if columns.get(file.path) != b""],
            self.policy,
            self._target_file_bytes,
            lambda file: (keys[file.path], columns.get(file.path)),
        )

    def extraction(self, unit: WorkUnit) -> Extraction:
        return _CompactedExtraction(self, unit)

    def _target_file_bytes(self, branch: str) -> int:
        sink = file_sink_of(self.flow, branch)
        if sink is None:
            return 0
        in_row_groups = sink.streams and sink.format == "parquet"
        return sink.target_file_bytes if in_row_groups else min(sink.target_file_bytes, _WHOLE_FILE_BYTES)

    def _published(self, state: DatasetState) -> DatedFiles:
        return DatedFiles(self.fs, self.output, state.dataset_urn, state.done_epoch, self.flow)

    def _key(self, file: LiveFile, attempts: Counter[Attempt]) -> Hashable | None:
        """Return the epoch if offsets are comparable only within it, else 0. None for files that are left: other
        formats, unknown branches, error files, and files that may share an input record within an attempt."""
        footer, provenance = file.footer, self.provenance
        sink = file_sink_of(self.flow, footer.branch)
        if footer.makes_several and attempts[attempt_named(file.path), footer.branch] != 1:
            return None
        if footer.kind != "data" or sink is None or not file.path.endswith(sink.ending):
            return None
        return min(epochs_of(footer)) if provenance is not None and provenance.counts_reading else 0

    def _columns(self, file: LiveFile) -> pa.Schema:
        return look_into(self.fs, f"{self.output}/{file.path}")[0]


def file_sink_of(flow: TaskFlow, branch: str) -> FileSink | None:
    sink = next((candidate.sink for candidate in flow.branches if candidate.name == branch), None)
    return sink if isinstance(sink, FileSink) else None


def _may_overflow(schema: pa.Schema) -> bool:
    types = [field.type for field in schema]
    for column in types:  # grows by the nested types
        types += [column.field(index).type for index in range(column.num_fields)]
    return any(pa.types.is_dictionary(column) and column.index_type.bit_width < 32 for column in types)


def _columns_key(schema: pa.Schema) -> bytes:
    """Return columns with field metadata, which schema equality ignores."""
    key: bytes = schema.serialize().to_pybytes()
    return key


def _unit(state: DatasetState, files: Sequence[LiveFile]) -> WorkUnit:
    first, paths = files[0].footer, tuple(file.path for file in files)
    records = sum(file.footer.records for file in files)
    return CompactedFiles(first.branch, state.done_epoch, paths).unit(state.dataset_urn, first.incarnation, records)


class _CompactedExtraction(MaintenanceExtraction):
    def __init__(self, source: CompactionSource, unit: WorkUnit) -> None:
        super().__init__(source.flow, unit)
        self._source = source
        self._superseded, self._published, self._bytes = list[SupersededFile](), list[str](), 0

    def bytes_read(self) -> int:
        return self._bytes

    def with_maintenance_files(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """Add the merged file and its tombstone, both staged.

        Raises:
            CorruptError: if an input is missing or damaged, or the result differs.
            ConfigurationError: if the sink cannot write the columns.
        """
        compacted = CompactedFiles.of(self.unit)
        sink = None if compacted is None else file_sink_of(self._source.flow, compacted.branch)
        if compacted is None or sink is None:
            return tuple(results)
        footers = [self._footer(path) for path in compacted.files]
        footer = merged_footer(identity, footers)
        first, provenance = compacted.files[0], self._source.provenance
        try:
            schema = look_into(self._source.fs, f"{self._source.output}/{first}")[0]
        except FileNotFoundError as error:
            raise _missing(first, identity) from error
        records = self._records(compacted.files, footers, identity)
        folder = first.rpartition("/")[0]
        staged = write_merged_file(area, sink, identity, folder, schema, records, footer, provenance)
        self._published.append(staged.final_path)
        result = BranchResult(
            compacted.branch, sink.name, (staged,), records_written=footer.records, content_sum=footer.content_sum
        )
        others = [other for other in results if other.branch != compacted.branch]
        return MaintenanceExtraction.with_maintenance_files(self, (result, *others), area, identity)

    def tombstone(self, results: Sequence[BranchResult], identity: AttemptIdentity) -> Tombstone | None:
        compacted = CompactedFiles.of(self.unit)
        if compacted is None or not self._superseded:
            return None
        return build_tombstone(identity, "compact", compacted.base, self._published, self._superseded, ())

    def _footer(self, below: str) -> Footer:
        path, identity = f"{self._source.output}/{below}", self.unit
        try:
            footer = read_published_footer(self._source.fs, path)
        except FileNotFoundError as error:
            raise _missing(below, identity) from error
        if footer is None or footer.dataset_urn != identity.dataset_urn:
            raise _changed(path, f"a file of dataset {identity.dataset_urn}", "no footer of this dataset")
        return footer

    def _records(
        self, paths: Sequence[str], footers: Sequence[Footer], identity: AttemptIdentity
    ) -> Iterator[pa.RecordBatch]:
        fs = self._source.fs
        for below, footer in zip(paths, footers, strict=True):
            path, records, content = f"{self._source.output}/{below}", 0, 0
            try:
                status = fs.status(path)
                for batch in read_batches(fs, path):
                    records += batch.num_rows
                    content += content_sum(batch)
                    yield batch
            except FileNotFoundError as error:
                raise _missing(below, identity) from error
            if status is None:
                raise _missing(below, identity)
            if (records, as_text(content)) != (footer.records, footer.content_sum):
                expected = f"{footer.records} records with content sum {footer.content_sum}"
                raise _changed(path, expected, f"{records} records with content sum {as_text(content)}")
            self._bytes += status.size_bytes
            self._superseded.append(SupersededFile(below, status.size_bytes, "", records))


def _missing(below: str, unit: AttemptIdentity | WorkUnit) -> CorruptError:
    return CorruptError(
        "a published file disappeared while it was compacted",
        id="COMPACTED_FILE_MISSING",
        dataset=unit.dataset_urn,
        path=below,
        expected="the file that the commit log names",
        found="no file",
        todo="restore the file from a backup, or read its offsets from the source again",
    )


def _changed(path: str, expected: str, actual: str) -> CorruptError:
    return CorruptError(
        "a published file differs from its footer",
        id="PUBLISHED_FILE_CORRUPT",
        path=path,
        expected=expected,
        found=actual,
        todo="restore it from a backup",
    )
