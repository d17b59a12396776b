"""One file of an attempt: rows waiting in memory, and bytes in staging."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FileSystem, StagedWriter
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered, Origin, Origins
from distcommit.core.work_units import SkippedRange, is_error_branch, rejecting_branch
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.formats.encoders import Encoder
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of

_BATCH_OVERHEAD_BYTES = 4096  # memory of a batch beside its data


_TEMPORARY_ORIGIN = Provenance("distcommit:partition", "distcommit:offset")
"""Temporary columns with the origin of each waiting record; they are not written."""


def with_origins(batch: pa.RecordBatch, origins: Origins) -> pa.RecordBatch:
    """Add the temporary columns of origins, which `OpenFile` removes."""
    batch = batch.append_column(_TEMPORARY_ORIGIN.partition_column, origins.partitions)
    return batch.append_column(_TEMPORARY_ORIGIN.offset_column, origins.offsets)


def without_origins(schema: pa.Schema) -> pa.Schema:
    return pa.schema(list(schema)[:-2]) if schema.names[-2:] == [*_names(_TEMPORARY_ORIGIN)] else schema


def _names(provenance: Provenance) -> tuple[str, str]:
    return provenance.partition_column, provenance.offset_column


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A complete, unpublished file of an attempt.

    Attributes:
        path: absolute path of the staged file.
        final_path: path below the output at which it will be published.
        status: status of the staged file after its last byte was written.
        checksum: xxh3-64 of the file's bytes.
        records: number of rows.
        content_sum: checksum of the records (`sinks.files.content_sum`), as 16 hexadecimal digits.
    """

    path: str
    final_path: str
    status: FileStatus
    checksum: int
    records: int
    content_sum: str


class OpenFile:
    """A file of one schema, which is created with its first bytes.

    Args:
        path: absolute path at which the file is written.
        target: absolute path at which the file will be published.
        final_path: `target` relative to the output.
        sort_by: columns and orders (`ascending`, `descending`).
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        path: str,
        target: str,
        final_path: str,
        schema: pa.Schema,
        encoder: Encoder,
        identity: AttemptIdentity,
        origin: Origin,
        number: int,
        access: FileAccess | None,
        sort_by: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.schema, self.waiting_bytes, self.encoder = schema, 0, encoder
        self._fs, self._path, self._target, self._final_path = fs, path, target, final_path
        self._identity, self._origin, self._number, self._access = identity, origin, number, access
        self._sort_by = list(sort_by)
        self._waiting: list[pa.RecordBatch] = []
        self._staged: StagedWriter | None = None
        self._records = self._content_sum = 0
        self._offsets, self._holes = OffsetSets(), OffsetSets()
        self._filtered, self._stripped = Filtered({}, {}), False

    @property
    def is_open(self) -> bool:
        return self._staged is not None

    @property
    def size_bytes(self) -> int:
        return 0 if self._staged is None else self._staged.size_bytes

    def add(self, rows: pa.RecordBatch, plain_bytes: int) -> int:
        grown = plain_bytes + _BATCH_OVERHEAD_BYTES
        self._waiting.append(rows)
        self.waiting_bytes += grown
        return grown

    def add_holes(self, holes: Iterable[SkippedRange]) -> None:
        self._holes.update(offsets_of(holes))

    def add_filtered(self, filtered: Filtered) -> None:
        self._filtered = filtered

    def write_row_group(self) -> None:
        rows = self._pop_waiting()
        if rows is not None:
            self.encoder.append(rows, self._begin())

    def finish(self, origin: Footer | None = None) -> ClosedFile:
        """Write waiting rows and footer, and close the file without syncing.

        Args:
            origin: the footer of merged rows, whose records and content sum are replaced. By default the attempt's
                footer is written.
        """
        rows = self._pop_waiting()
        staged = self._begin()
        self.encoder.finish(rows, self._metadata(origin), staged)
        checksum, self._staged = staged.checksum, None
        status = staged.close_file(sync=False)
        if self._access is not None:
            self._fs.set_access(self._path, self._access)  # before the file is published
        content = as_text(self._content_sum)
        return ClosedFile(self._path, self._final_path, status, checksum, self._records, content)

    def abandon(self) -> None:
        """Close the file without finishing or deleting it."""
        self._waiting.clear()
        self.encoder.abandon()
        staged, self._staged = self._staged, None
        if staged is not None:
            with contextlib.suppress(OSError):
                staged.close_file(sync=False)

    def _begin(self) -> StagedWriter:
        if self._staged is None:
            try:
                self._staged = self._fs.create(self._path, self._target)
            except FileNotFoundError:  # the attempt's first file
                self._fs.make_folder(
                    self._path.rpartition("/")[0]
                )  # not its parents, which a clean-up may have deleted
                self._staged = self._fs.create(self._path, self._target)
        return self._staged

    def _pop_waiting(self) -> pa.Table | None:
        if not self._waiting:
            return None
        rows = pa.Table.from_batches(self._waiting, schema=self.schema)
        self._waiting, self.waiting_bytes = [], 0
        if self._sort_by:
            rows = rows.sort_by(self._sort_by)
        written = without_origins(self.schema)
        if written is not self.schema:
            self._offsets.add(rows, _TEMPORARY_ORIGIN)
            self._stripped |= not _has_origin(rows, self._origin.provenance)
            rows = pa.Table.from_arrays(rows.columns[:-2], schema=written)
        elif self._origin.provenance is not None:
            self._offsets.add(rows, self._origin.provenance)
        self._content_sum += content_sum(rows)
        self._records += rows.num_rows
        return rows

    def _metadata(self, origin: Footer | None) -> Mapping[str, str]:
        if origin is not None:
            content = as_text(self._content_sum)
            return replace(origin, records=self._records, content_sum=content).to_metadata()
        branch, has_errors = self._identity.branch, is_error_branch(self._identity.branch)
        return Footer(
            dataset_urn=self._identity.dataset_urn,
            epoch=self._identity.epoch,
            run_id=self._identity.run_id,
            work_unit_id=self._identity.work_unit_id,
            attempt=self._identity.attempt,
            records=self._records,
            offsets="" if self._origin.provenance is None else self._offsets.to_text(),
            kind="rejected" if has_errors else "data",
            holes=self._holes.to_text() if self._holes.count() else "",
            incarnation=self._origin.incarnation,
            content_sum=as_text(self._content_sum),
            branch=rejecting_branch(branch) if has_errors else branch,
            branches=tuple(self._origin.branches),
            makes_several=self._origin.makes_several and not has_errors,
            stripped=self._stripped,
            filtered=dict(self._filtered.positions),
            filtered_by=dict(self._filtered.counts),
            number=self._number,
            replaces=tuple(self._origin.replaces),
            publish="" if self._origin.publish == "append" else self._origin.publish,
        ).to_metadata()


def _has_origin(rows: pa.Table, provenance: Provenance | None) -> bool:
    if provenance is None:
        return False
    for name, apart in zip(_names(provenance), _names(_TEMPORARY_ORIGIN), strict=True):
        if rows.schema.names.count(name) != 1 or not rows.column(name).equals(rows.column(apart)):
            return False
    return True
