"""Published files that a bug or a script has altered: complete, with their original footer, and with other records."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import Footer, read_footer, read_records
from distcommit.sinks.files.sink import FileSink

_PACKED = {"": "none", "gz": "gzip", "zst": "zstd"}


class _OneFile(LocalFileSystem):
    """A file in memory, for readers of files."""

    scheme = "memory"

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def read(self, path: str) -> bytes:
        return self._data


class _Bytes:
    """The output buffer of an encoder."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


def with_values_swapped(data: bytes, extension: str, *, column: str = "value", summed_again: bool = False) -> bytes:
    """Return a published file in which the first and the last record have exchanged values.

    Its footer is the original one or, with `summed_again`, that of the new content. `extension`: the end of its name,
    without the first dot.

    Raises:
        ValueError: if these records have equal values, or the file is not from this product.
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
    """Return a published file without a content sum, as older versions wrote it."""
    footer = msgspec.structs.replace(footer_in(data, extension), content_sum="")
    return encoded(_records_in(data, extension), extension, footer.to_metadata())


def footer_in(data: bytes, extension: str) -> Footer:
    """Return the footer of a published file.

    Raises:
        ValueError: if it has none.
    """
    footer = read_footer(_OneFile(data), f"/file.{extension}")
    if footer is None:
        raise ValueError("this file is not from this product")
    return footer


def _records_in(data: bytes, extension: str) -> pa.Table:
    return read_records(_OneFile(data), f"/file.{extension}")


def encoded(rows: pa.Table, extension: str, metadata: Mapping[str, str]) -> bytes:
    """Return a file of these rows and that footer; `extension`: the end of its name, without the first dot."""
    written = _Bytes()
    form, _, packed = extension.partition(".")
    sink = FileSink.model_validate({"format": form, "compression": _PACKED[packed]})
    sink.encoder(rows.schema).finish(rows, metadata, written)  # type: ignore[arg-type]
    return bytes(written.data)
