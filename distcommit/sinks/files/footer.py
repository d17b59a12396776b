"""What every published file says about itself, in its own metadata, and reading it back.

One metadata key, `distcommit`, holds JSON (Parquet: key-value metadata of the footer; Avro: file header; ORC: user
metadata of the footer; JSON lines and CSV: behind the compressed text). With it an audit need not read records, and a
lost store can be rebuilt from the files.
"""

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

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.ports import FileSystem
from distcommit.core.work import MAIN_BRANCH
from distcommit.decoding import from_json
from distcommit.formats.avro import containers
from distcommit.sinks.files import orc_container, text_files
from distcommit.sinks.files.encoders import FileFormat

METADATA_KEY = "distcommit"
FOOTER_VERSION = 1

FileKind = Literal["data", "rejected"]
"""Whether a file holds records as they were asked for, or records that were turned away."""

_WHOLE: dict[str, FileFormat] = {".parquet": "parquet", ".avro": "avro", ".orc": "orc"}
_TEXTS: dict[str, FileFormat] = {".jsonl": "jsonl", ".csv": "csv"}

_ARROW_SCHEMA = b"ARROW:schema"
"""Where Arrow keeps a Parquet file's columns as they were."""

_NO_CHECKSUM = '""}'
"""How the text ends that the checksum is of."""

_DAMAGE = (
    pa.ArrowException,
    *(msgspec.DecodeError, zlib.error),
    *(ValueError, EOFError, LookupError, TypeError, OverflowError, MemoryError, RecursionError),
)
_Count = Annotated[int, msgspec.Meta(ge=0)]

Wanted = Callable[[pa.Schema], pc.Expression | None]
"""What is true of each record that is wanted of a file with these columns; None if that is any."""


class _Version(msgspec.Struct):
    version: int


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records of one file come from.

    `offsets` is the text of `OffsetSets`, "" when the source has no offsets: which input records the file's records
    were made of. `records` counts rows: if it is more than the offsets, the file holds a record twice, unless
    `makes_several`: then a construct may have made several records of one. `stripped`: the records do not say their own
    positions. `holes` is the text of the `OffsetSets` that its work unit passed and that had no record, "" for none;
    another file of the same attempt may name others. `incarnation` is what the offsets count in (a Kafka topic id), ""
    if unknown. `content_sum` is what the records come to, whatever their order (`sinks.files.content`), as 16
    hexadecimal digits; "" in files that were written before there was one.

    `branch` is the one that the records went to, of all `branches` of the flow; of rejected ones the branch that turned
    them away, "" if all did. `filtered` are input records of the same attempt that nothing was written of, on purpose,
    by branch as text of `OffsetSets`, and `filtered_by` how many each construct took out: one of an attempt's files has
    them, for all of its branches. `number`: which of the files it is that the attempt wrote in the branch, from 1.

    `replaces`: the epochs of the files whose records were fed again and are here now, retired by a tombstone of the
    same attempt, and of the files that these records were in before; none of what was read from the source. `publish`:
    empty if that was added to what was published, else how it takes the place of older files, which a replacement of
    the same epoch (`stores.folders.tombstones`) names.
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
    publish: Literal["", "replace", "replace_partitions"] = ""
    checksum: str = ""

    def to_metadata(self) -> dict[str, str]:
        """The footer as file metadata, with its checksum."""
        text = msgspec.json.encode(msgspec.structs.replace(self, checksum="")).decode()
        return {METADATA_KEY: f'{text.removesuffix(_NO_CHECKSUM)}"{xxh3_64_hexdigest(text.encode())}"}}'}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Footer | None:
        """The footer in a file's metadata; None if there is none.

        Raises:
            UnknownVersionError: if it is of another format version.
            CorruptError: if it can't be read.
        """
        text = metadata.get(METADATA_KEY)
        if text is None:
            return None
        try:
            found = from_json(text, _Version).version
            if found == FOOTER_VERSION:
                footer = from_json(text, Footer)
                _check(footer, text)
                return msgspec.structs.replace(footer, checksum="")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CorruptError(
                "a file's footer can't be read", expected="what distcommit wrote", found=f"{error}: {text[:200]!r}"
            ) from error
        raise UnknownVersionError(
            "a file's footer is of an unknown version",
            expected=f"version {FOOTER_VERSION}",
            found=f"version {found}",
            todo="read it with the version of distcommit that wrote it; if there is none of that version, the file is"
            " damaged (no checksum covers this number): restore it",
        )


def _check(footer: Footer, text: str) -> None:
    """Makes sure that the text is the one that was written: Parquet's own checksums are of pages, and a changed letter
    would be another branch, or another epoch. Raises CorruptError."""
    plain = text.removesuffix(f'"{footer.checksum}"}}') + _NO_CHECKSUM
    expected = xxh3_64_hexdigest(plain.encode("utf-8", "surrogatepass"))
    if footer.checksum != expected:
        raise CorruptError(
            "a file's footer is not what was written",
            expected=f"the checksum {expected}",
            found=f"{footer.checksum or 'none'}: {text[:200]!r}",
            todo="restore the file from a backup, or read its offsets from the source again",
        )


def read_footer(fs: FileSystem, path: str) -> Footer | None:
    """The footer of a file, whose format its name's ending tells, without reading records.

    Returns:
        None if the file is not one of ours: another ending, or no footer in its metadata.

    Raises:
        FileNotFoundError: if there is no such file.
        CorruptError: if it is no whole file of that format, or its footer can't be read.
    """
    if (form := _form_of(path)) is None:
        return None
    with _corrupt_if_unreadable(path), _open(fs, path) as file:
        ours = _metadata_of(file, form, path).get(METADATA_KEY.encode())
        return None if ours is None else Footer.from_metadata({METADATA_KEY: ours.decode()})


def read_records(fs: FileSystem, path: str) -> pa.Table:
    """All records of a file, for deep audits.

    Raises:
        ValueError: if its name has another ending.
        FileNotFoundError: if there is no such file.
        CorruptError: if the file can't be read.
    """
    if (form := _form_of(path)) is None:
        raise ValueError(f"expected a name that ends as those of published files, found {path!r}")
    with _corrupt_if_unreadable(path), _open(fs, path) as file:
        if form == "avro":
            from distcommit.formats.avro import container_reader  # noqa: PLC0415 - of this format alone

            return container_reader.read_table(file)
        if form == "orc":
            return orc_container.read_table(file)
        if form == "parquet":
            return _read_parquet(file)
        return text_files.read_table(file, text_files.CODECS[posixpath.splitext(path)[1]], form)


def read_batches(
    fs: FileSystem, path: str, columns: Collection[str] | None = None, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a file, of Parquet a part at a time. Raises as `read_records`.

    Args:
        fs: where it is.
        path: its path there.
        columns: of Parquet these alone are read, as far as it has them; of others all are.
        wanted: of Parquet, row groups that have no such record by their statistics are not read; what is read is given
            whole.
    """
    if not path.endswith(".parquet"):
        yield from read_records(fs, path).to_batches()
        return
    with _corrupt_if_unreadable(path), _open(fs, path) as opened:
        file, groups = _parquet(opened, wanted)
        names = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
        if groups:
            yield from file.iter_batches(row_groups=groups, columns=names)


def look_into(fs: FileSystem, path: str, wanted: Wanted | None = None) -> tuple[pa.Schema, bool]:
    """The columns of a file, without what it says about itself, and whether it may have a wanted record; of Parquet its
    footer is read, of others all of it. Raises as `read_records`."""
    if not path.endswith(".parquet"):
        return read_records(fs, path).schema.remove_metadata(), True
    with _corrupt_if_unreadable(path), _open(fs, path) as opened:
        file, groups = _parquet(opened, wanted)
        return file.schema_arrow.remove_metadata(), bool(groups)


def read_written_schema(fs: FileSystem, path: str) -> pa.Schema:
    """The columns of a Parquet file as they were given to its writer; what has no type of its own in Parquet is read as
    another. Raises as `read_records`."""
    with _corrupt_if_unreadable(path), _open(fs, path) as opened:
        metadata = pq.read_metadata(opened)
        kept = (metadata.metadata or {}).get(_ARROW_SCHEMA)
        found = metadata.schema.to_arrow_schema() if kept is None else pa.ipc.read_schema(pa.py_buffer(b64decode(kept)))
        return found.remove_metadata()


def _parquet(opened: pa.NativeFile, wanted: Wanted | None) -> tuple[pq.ParquetFile, list[int]]:
    """The file, and its row groups that may have a wanted record by their statistics."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - it brings pandas along, of all that import this

    fragment = ds.ParquetFileFormat().make_fragment(opened)
    file = pq.ParquetFile(opened, metadata=fragment.metadata, page_checksum_verification=True)
    expression = None if wanted is None else wanted(file.schema_arrow)
    if expression is None:
        return file, list(range(file.num_row_groups))
    return file, [group.id for group in fragment.subset(filter=expression).row_groups]


def _form_of(path: str) -> FileFormat | None:
    """The format that a name's ending tells; None if that is none of ours."""
    name, extension = posixpath.splitext(path)
    if extension in text_files.CODECS:
        return _TEXTS.get(posixpath.splitext(name)[1])
    return _WHOLE.get(extension)


def _metadata_of(file: pa.NativeFile, form: FileFormat, path: str) -> Mapping[bytes, bytes]:
    if form == "avro":
        return containers.read_header(file).metadata
    if form == "orc":
        return orc_container.read_metadata(file)
    if form == "parquet":
        return pq.read_metadata(file).metadata or {}
    return text_files.read_metadata(file, text_files.CODECS[posixpath.splitext(path)[1]])


def _read_parquet(file: pa.NativeFile) -> pa.Table:
    return pq.ParquetFile(file, page_checksum_verification=True).read()


def _open(fs: FileSystem, path: str) -> pa.NativeFile:
    """A file for reading at any place: opened directly where this machine has it, else read whole."""
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
            raise  # the operating system's: nothing is known about the bytes
        raise _corrupt(path, error) from error  # Arrow's, for Thrift that it can't parse
    except _DAMAGE as error:
        raise _corrupt(path, error) from error


def _corrupt(path: str, error: Exception) -> CorruptError:
    return CorruptError(
        "a file can't be read",
        expected="a whole file, as its name's ending says",
        found=f"{type(error).__name__}: {str(error)[:200]}",
        todo="compare its checksum with the one in the task state",
        path=path,
    )
