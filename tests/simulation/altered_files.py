"""Published files as somebody's bug or script may leave them: whole, with the footer that they had, and with other
records."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.sinks.files.content import as_text, content_sum
from distcommit.sinks.files.footer import Footer, read_footer, read_records
from distcommit.sinks.files.sink import FileSink

_PACKED = {"": "none", "gz": "gzip", "zst": "zstd"}


class _OneFile(LocalFileSystem):
    """A file that is in memory, for readers of files."""

    scheme = "memory"

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def read(self, path: str) -> bytes:
        return self._data


class _Bytes:
    """What an encoder writes."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


def with_values_swapped(data: bytes, extension: str, *, column: str = "value", summed_again: bool = False) -> bytes:
    """A published file in which the first and the last record have each other's value. Its footer is the one that it
    had or, `summed_again`, says what it holds now. `extension`: how its name ends, without the first dot.

    Raises:
        ValueError: if these records have the same value, or the file is none of ours.
    """
    rows, footer = _records_in(data, extension), footer_in(data, extension)
    values = rows[column].to_pylist()
    if values[0] == values[-1]:
        raise ValueError(f"nothing to swap in a file of {rows.num_rows} records")
    values[0], values[-1] = values[-1], values[0]
    place = rows.schema.get_field_index(column)
    swapped = rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))
    if summed_again:
        footer = msgspec.structs.replace(footer, content_sum=as_text(content_sum(swapped)))
    return encoded(swapped, extension, footer.to_metadata())


def without_content_sum(data: bytes, extension: str) -> bytes:
    """A published file as it was written before there were such sums."""
    footer = msgspec.structs.replace(footer_in(data, extension), content_sum="")
    return encoded(_records_in(data, extension), extension, footer.to_metadata())


def footer_in(data: bytes, extension: str) -> Footer:
    """The footer of a published file.

    Raises:
        ValueError: if it has none.
    """
    footer = read_footer(_OneFile(data), f"/file.{extension}")
    if footer is None:
        raise ValueError("this file is none of ours")
    return footer


def _records_in(data: bytes, extension: str) -> pa.Table:
    return read_records(_OneFile(data), f"/file.{extension}")


def encoded(rows: pa.Table, extension: str, metadata: Mapping[str, str]) -> bytes:
    """A file of these rows that says that; `extension`: how its name ends, without the first dot."""
    written = _Bytes()
    form, _, packed = extension.partition(".")
    sink = FileSink.model_validate({"format": form, "compression": _PACKED[packed]})
    sink.encoder(rows.schema).finish(rows, metadata, written)  # type: ignore[arg-type]
    return bytes(written.data)
