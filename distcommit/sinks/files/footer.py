"""The footer of published files: JSON metadata with the origin of the records, from which a lost store can be
rebuilt."""

from __future__ import annotations

import posixpath
import zlib
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from distcommit.avro.container_format import read_header as read_avro_header
from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.protocol.paths.output import is_published_name
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.formats.orc_container import read_metadata as orc_metadata
from distcommit.sinks.files.formats.orc_container import read_table as read_orc
from distcommit.sinks.files.formats.text_files import CODECS
from distcommit.sinks.files.formats.text_files import read_metadata as text_metadata
from distcommit.sinks.files.formats.text_files import read_table as read_text

METADATA_KEY = "distcommit"
FOOTER_VERSION = 1

FileKind = Literal["data", "rejected"]

_FORMATS_WITH_METADATA: dict[str, FileFormat] = {".parquet": "parquet", ".avro": "avro", ".orc": "orc"}
_TEXTS: dict[str, FileFormat] = {".jsonl": "jsonl", ".csv": "csv"}

_ARROW_SCHEMA = b"ARROW:schema"
"""Metadata key with a Parquet file's columns in Arrow's types."""

_NO_CHECKSUM = '""}'

_DAMAGE = (
    pa.ArrowException,
    *(msgspec.DecodeError, zlib.error),
    *(ValueError, EOFError, LookupError, TypeError, OverflowError, MemoryError, RecursionError),
)
_Count = Annotated[int, msgspec.Meta(ge=0)]

Wanted = Callable[[pa.Schema], pc.Expression | None]
"""Returns the condition of the records to read, given a file's columns; None to read all."""


class _Version(msgspec.Struct):
    version: int
    """Format version, read first."""


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of the records of one file.

    Attributes:
        version: format version of the footer.
        dataset_urn: URN of the dataset.
        epoch: epoch of the run that wrote the file.
        run_id: id of that run.
        work_unit_id: id of the work unit with the records.
        attempt: id of the task attempt that wrote the file.
        records: number of rows. If it exceeds the number of offsets, the file has a record twice, unless
            `makes_several`.
        offsets: source offsets of the records, as text of `OffsetSets`; empty if the source has no offsets.
        kind: `data`, or `rejected` for a file of the error branch.
        holes: offsets of the work unit at which the source has no record, as text of `OffsetSets`. Other files of the
            attempt may have further holes.
        incarnation: incarnation of the source that the offsets belong to (a Kafka topic id); empty if unknown.
        content_sum: checksum of the records (`sinks.files.content_sum`), as 16 hexadecimal digits.
        branch: the records' branch; for rejected records the branch that rejected them, empty if all did.
        branches: all branches of the job.
        makes_several: whether one input record may have several output records.
        stripped: whether the file lacks the columns with the records' source offsets.
        filtered: offsets of filtered input records of the attempt, by branch as text of `OffsetSets`; only in one file
            of the attempt.
        filtered_by: number of records that each converter or checker filtered out.
        number: number of the file among those of the attempt and branch, from 1.
        replaces: epochs of all files that had these records before: error files that were reprocessed, or files that
            were compacted into this one. It is empty for records that were read from the source.
        publish: how the file replaces older files, which a tombstone of the same epoch names
            (`stores.folders.tombstones`); empty if it was added, or reprocessed.
        checksum: xxh3-64 of the footer without this field, as 16 hexadecimal digits; empty in a decoded footer.
    """

    version: int = FOOTER_VERSION
    dataset_urn: str
    epoch: _Count
    run_id: str
    work_unit_id: str
    attempt: str
    records: _Count
    offsets: str = ""
    kind: FileKind = "data"
    holes: str = ""
    incarnation: str = ""
    content_sum: str = ""
    branch: str = MAIN_BRANCH
    branches: tuple[str, ...] = (MAIN_BRANCH,)
    makes_several: bool = False
    stripped: bool = False
    filtered: dict[str, str] = {}
    filtered_by: dict[str, _Count] = {}
    number: _Count = 0
    replaces: tuple[_Count, ...] = ()
    publish: Literal["", "replace", "replace_partitions", "compact"] = ""
    checksum: str = ""

    def to_metadata(self) -> dict[str, str]:
        text = msgspec.json.encode(msgspec.structs.replace(self, checksum="")).decode()
        return {METADATA_KEY: f'{text.removesuffix(_NO_CHECKSUM)}"{xxh3_64_hexdigest(text.encode())}"}}'}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Footer | None:
        """Return a file's footer; None if it has none. Raises UnknownVersionError or CorruptError."""
        text = metadata.get(METADATA_KEY)
        if text is None:
            return None
        try:
            result = from_json(text, _Version).version
            if result == FOOTER_VERSION:
                footer = from_json(text, Footer)
                _check(footer, text)
                return msgspec.structs.replace(footer, checksum="")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CorruptError(
                "a file's footer can't be read",
                id="PUBLISHED_FILE_CORRUPT",
                expected="a footer as distcommit writes it",
                found=f"{error}: {text[:200]!r}",
            ) from error
        raise UnknownVersionError(
            "a file's footer has an unknown version",
            expected=f"version {FOOTER_VERSION}",
            found=f"version {result}",
            todo="run the version of distcommit that wrote the file; if no such version exists, the footer is damaged"
            " (no checksum covers this number): restore it",
        )


def _check(footer: Footer, text: str) -> None:
    """Raise CorruptError if the checksum differs. Parquet's own checksums cover only pages."""
    plain = text.removesuffix(f'"{footer.checksum}"}}') + _NO_CHECKSUM
    expected = xxh3_64_hexdigest(plain.encode("utf-8", "surrogatepass"))
    if footer.checksum != expected:
        raise CorruptError(
            "a file's footer has changed since it was written",
            id="PUBLISHED_FILE_CORRUPT",
            expected=f"the checksum {expected}",
            found=f"{footer.checksum or 'none'}: {text[:200]!r}",
            todo="restore the file from a backup, or read its offsets from the source again",
        )


def read_footer(fs: FileSystem, path: str) -> Footer | None:
    """Read a file's footer. Return None for an unknown ending, or a file without footer, such as truncated JSON lines
    and CSV. Raises FileNotFoundError, CorruptError and UnknownVersionError."""
    if (form := _form_of(path)) is None:
        return None
    with _corrupt_if_unreadable(path), _open(fs, path) as file:
        return Footer.from_metadata(_metadata_of(file, form, path))


def read_published_footer(fs: FileSystem, path: str) -> Footer | None:
    """Read a footer, but raise CorruptError if a published file has none."""
    footer = read_footer(fs, path)
    if footer is None and is_published_name(posixpath.basename(path)) and _form_of(path) is not None:
        raise _corrupt(path, ValueError("it has no footer of distcommit"))
    return footer


def read_records(fs: FileSystem, path: str) -> pa.Table:
    """Read all records. Raises ValueError for an unknown ending, FileNotFoundError, and CorruptError."""
    if (form := _form_of(path)) is None:
        raise ValueError(f"{path!r} must have the ending of a published file")
    with _corrupt_if_unreadable(path), _open(fs, path) as file:
        if form == "avro":
            from distcommit.avro.container_reader import read_table  # noqa: PLC0415 - of this format alone

            return read_table(file)
        if form == "orc":
            return read_orc(file)
        if form == "parquet":
            return pq.ParquetFile(file, page_checksum_verification=True).read()
        return read_text(file, CODECS[posixpath.splitext(path)[1]], form)


def read_batches(
    fs: FileSystem, path: str, columns: Collection[str] | None = None, predicate: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file. A Parquet file is read in parts. Raises the errors of `read_records`.

    Args:
        fs: the file system.
        path: the file's path.
        columns: columns to read of a Parquet file; other formats return all.
        predicate: condition of the records to read. Only Parquet row groups whose statistics exclude the condition are
            skipped.
    """
    if not path.endswith(".parquet"):
        yield from read_records(fs, path).to_batches()
        return
    with _corrupt_if_unreadable(path), _open(fs, path) as opened:
        file, groups = _parquet(opened, predicate)
        names = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
        if groups:
            yield from file.iter_batches(row_groups=groups, columns=names)


def look_into(fs: FileSystem, path: str, predicate: Wanted | None = None) -> tuple[pa.Schema, bool]:
    """Return a file's columns, and whether it may have a matching record. Only the footer of Parquet is read; for other
    formats the answer is True. Raises the errors of `read_records`."""
    if not path.endswith(".parquet"):
        return read_records(fs, path).schema.remove_metadata(), True
    with _corrupt_if_unreadable(path), _open(fs, path) as opened:
        file, groups = _parquet(opened, predicate)
        return file.schema_arrow.remove_metadata(), bool(groups)


def has_columns_in_footer(path: str) -> bool:
    return _form_of(path) == "parquet"


def read_written_schema(fs: FileSystem, path: str) -> pa.Schema:
    """Return the Arrow columns that a Parquet file was written with. Raises FileNotFoundError and CorruptError."""
    with _corrupt_if_unreadable(path), _open(fs, path) as opened:
        metadata = pq.read_metadata(opened)
        stored = (metadata.metadata or {}).get(_ARROW_SCHEMA)
        result = (
            metadata.schema.to_arrow_schema() if stored is None else pa.ipc.read_schema(pa.py_buffer(b64decode(stored)))
        )
        return result.remove_metadata()


def _parquet(opened: pa.NativeFile, predicate: Wanted | None) -> tuple[pq.ParquetFile, list[int]]:
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas

    fragment = ds.ParquetFileFormat().make_fragment(opened)
    file = pq.ParquetFile(opened, metadata=fragment.metadata, page_checksum_verification=True)
    expression = None if predicate is None else predicate(file.schema_arrow)
    if expression is None:
        return file, list(range(file.num_row_groups))
    return file, [group.id for group in fragment.subset(filter=expression).row_groups]


def _form_of(path: str) -> FileFormat | None:
    name, extension = posixpath.splitext(path)
    if extension in CODECS:
        return _TEXTS.get(posixpath.splitext(name)[1])
    return _FORMATS_WITH_METADATA.get(extension)


def _metadata_of(file: pa.NativeFile, form: FileFormat, path: str) -> Mapping[str, str]:
    if form == "orc":
        return orc_metadata(file)
    if form not in ("avro", "parquet"):
        return text_metadata(file, CODECS[posixpath.splitext(path)[1]])
    raw = read_avro_header(file).metadata if form == "avro" else pq.read_metadata(file).metadata or {}
    footer = raw.get(METADATA_KEY.encode())
    return {} if footer is None else {METADATA_KEY: footer.decode()}


def _open(fs: FileSystem, path: str) -> pa.NativeFile:
    return pa.OSFile(path, "rb") if fs.scheme == "file" else pa.BufferReader(fs.read(path))


@contextmanager
def _corrupt_if_unreadable(path: str) -> Iterator[None]:
    try:
        yield
    except CorruptError as error:
        error.ids.setdefault("path", path)
        raise
    except OSError as error:
        if error.errno is not None:
            raise  # of the operating system: the bytes are unknown
        raise _corrupt(path, error) from error  # of Arrow, for Thrift that it can't parse
    except _DAMAGE as error:
        raise _corrupt(path, error) from error


def _corrupt(path: str, error: Exception) -> CorruptError:
    return CorruptError(
        "a file can't be read",
        id="PUBLISHED_FILE_CORRUPT",
        expected="a whole file, as its name's ending says",
        found=f"{type(error).__name__}: {str(error)[:200]}",
        todo="compare its checksum with the one in the task state",
        path=path,
    )
