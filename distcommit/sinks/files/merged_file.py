"""Merging of published records into one file, which is written and verified on the local disk, because staged files of
object stores cannot be read."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.file_system import FileStatus, FileSystem
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.core.work_units import StagedFile, sum_content
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.output import published_name, published_start
from distcommit.protocol.paths.staging import staged_name
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import Footer, look_into, read_batches
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.sinks.files.open_file import ClosedFile, OpenFile
from distcommit.sinks.files.sink import FileSink

_ROW_GROUP_BYTES = 64 << 20
_STAGED_FOLDER = "merged"
_COPIED_BYTES = 8 << 20


def merged_footer(identity: AttemptIdentity, footers: Sequence[Footer]) -> Footer:
    """Return the footer of a merged file, from footers with equal branch, branches and incarnation.

    `replaces` names the epochs of the merged files, so that audits and rebuilds do not count the records twice.
    """
    first, filtered, filtered_by = footers[0], dict[str, OffsetSets](), dict[str, int]()
    for footer in footers:
        for branch, text in footer.filtered.items():
            filtered.setdefault(branch, OffsetSets()).update(parsed(text))
        for construct, count in footer.filtered_by.items():
            filtered_by[construct] = filtered_by.get(construct, 0) + count
    return Footer(
        dataset_urn=identity.dataset_urn,
        epoch=identity.epoch,
        run_id=identity.run_id,
        work_unit_id=identity.work_unit_id,
        attempt=identity.attempt,
        records=sum(footer.records for footer in footers),
        offsets=_union(footer.offsets for footer in footers),
        holes=_union(footer.holes for footer in footers),
        incarnation=first.incarnation,
        content_sum=sum_content(footer.content_sum for footer in footers),
        branch=first.branch,
        branches=first.branches,
        makes_several=first.makes_several,
        stripped=first.stripped,
        filtered={branch: sets.to_text() for branch, sets in filtered.items()},
        filtered_by=filtered_by,
        number=1,
        replaces=tuple(sorted({epoch for footer in footers for epoch in (footer.epoch, *footer.replaces)})),
        publish="compact",
    )


def write_merged_file(
    area: StagingArea,
    sink: FileSink,
    identity: AttemptIdentity,
    folder: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    footer: Footer,
    provenance: Provenance | None,
) -> StagedFile:
    """Stage a file of these records, closed but not synced, and compare it with its footer.

    Rows wait in memory for a row group. Avro, ORC and sorted files are written from memory as a whole.

    Args:
        sink: the sink of the branch: format, encoding and sort order.
        folder: folder of the file below the output.
        footer: the footer, with the expected records, content sum and offsets.
        provenance: the columns with each record's offset, which are compared unless the footer is `stripped`.

    Raises:
        CorruptError: if the written file has other records or columns than expected, or the copy has other bytes.
        ConfigurationError: if the sink cannot write the columns.
    """
    fs, name = area.fs, staged_name(1, sink.ending)
    staged_folder = f"{area.folder}/{_STAGED_FOLDER}"
    start = published_start(identity.epoch, identity.work_unit_id, identity.attempt)
    final_path, path = f"{folder}/{published_name(start, 1, sink.ending)}", f"{staged_folder}/{name}"
    target = f"{area.output_root}/{final_path}"
    with tempfile.TemporaryDirectory(prefix="distcommit-merged-") as spool:
        local = LocalFileSystem(durable=False)
        file = OpenFile(
            local,
            path=f"{spool}/{name}",
            target=target,
            final_path=final_path,
            schema=schema,
            encoder=sink.encoder(schema),
            identity=identity,
            origin=Origin(),
            number=1,
            access=None,
            sort_by=sink.sort_keys,
        )
        closed = _written(file, batches, footer, row_group_bytes=_ROW_GROUP_BYTES if sink.streams else 0)
        _require_conserved(local, closed.path, schema, footer, provenance)
        fs.make_folder(staged_folder)
        status = _copy(closed, fs, path, target, footer)
    if sink.file_access is not None:
        fs.set_access(path, sink.file_access)  # before the file is published
    return StagedFile(
        staged_path=f"{area.prefix}/{_STAGED_FOLDER}/{name}",
        final_path=final_path,
        size_bytes=status.size_bytes,
        checksum=closed.checksum,
        file_id=status.file_id,
        mtime_ns=status.mtime_ns,
        records=closed.records,
    )


def _written(file: OpenFile, batches: Iterable[pa.RecordBatch], footer: Footer, *, row_group_bytes: int) -> ClosedFile:
    try:
        file.add(pa.RecordBatch.from_pylist([], schema=file.schema), 0)
        for batch in batches:
            file.add(batch.replace_schema_metadata(None), batch.nbytes)
            if row_group_bytes and file.waiting_bytes >= row_group_bytes:
                file.write_row_group()
        return file.finish(footer)
    except BaseException:
        file.abandon()
        raise


def _copy(closed: ClosedFile, fs: FileSystem, path: str, target: str, footer: Footer) -> FileStatus:
    """Copy a verified file to staging, and close the copy. If staged files can be read, read it back. Raise
    CorruptError if the copy has other bytes."""
    staged = fs.create(path, target)
    try:
        with Path(closed.path).open("rb") as spooled:
            while data := spooled.read(_COPIED_BYTES):
                staged.write(data)
        if staged.checksum != closed.checksum:
            raise _not_conserved(footer, f"checksum {closed.checksum:016x}", f"{staged.checksum:016x} in the copy")
    except BaseException:
        with contextlib.suppress(OSError):
            staged.close_file(sync=False)
        raise
    status = staged.close_file(sync=False)
    if fs.has_folders and (checksum := fs.checksum(path)) != closed.checksum:  # not in an object store
        raise _not_conserved(footer, f"checksum {closed.checksum:016x}", f"{checksum:016x} in the staged file")
    return status


def _require_conserved(
    fs: FileSystem, path: str, schema: pa.Schema, expected: Footer, provenance: Provenance | None
) -> None:
    records, content, offsets = 0, 0, OffsetSets()
    has_offsets = provenance is not None and not expected.stripped and bool(expected.offsets)
    for batch in read_batches(fs, path):
        records += batch.num_rows
        content += content_sum(batch)
        if provenance is not None and has_offsets:
            offsets.add(batch, provenance)
    written = look_into(fs, path)[0]
    if not written.equals(schema, check_metadata=True):
        raise _not_conserved(expected, f"columns {_one_line(schema)}", _one_line(written))
    if (records, as_text(content)) != (expected.records, expected.content_sum):
        required = f"{expected.records} records with content sum {expected.content_sum}"
        raise _not_conserved(expected, required, f"{records} records with content sum {as_text(content)}")
    if has_offsets and offsets != parsed(expected.offsets):
        raise _not_conserved(expected, "the offsets of the merged files", "other offsets in the merged file")


def _union(texts: Iterable[str]) -> str:
    sets = OffsetSets()
    for text in texts:
        sets.update(parsed(text))
    return sets.to_text() if sets.count() else ""


def _one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{_metadata_text(field)}" for field in schema)


def _metadata_text(field: pa.Field) -> str:
    return f" {field.metadata}" if field.metadata else ""


def _not_conserved(footer: Footer, expected: str, actual: str) -> CorruptError:
    return CorruptError(
        "the merged file differs from the files that it would replace",
        id="COMPACTION_NOT_CONSERVED",
        dataset=footer.dataset_urn,
        work_unit=footer.work_unit_id,
        expected=expected,
        found=actual,
        todo="run `distcommit audit --deep`; nothing was published, and the old files stay",
    )
