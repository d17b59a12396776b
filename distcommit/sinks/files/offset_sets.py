"""Exact sets of source offsets by source partition.

They are 64-bit roaring bitmaps (https://github.com/RoaringBitmap/RoaringFormatSpec). A gap-free range within an aligned
block of 65,536 offsets takes 27 bytes.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from xxhash import xxh3_64

from distcommit.core.errors import ConfigurationError, CorruptError, SourceError, UnknownVersionError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Origins
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import SkippedRange

OFFSETS_VERSION = 1
_FEW_ROWS = 8  # few rows are added one by one, without the setup for many
_ROWS_PER_RUN = 8  # with fewer offsets per gap-free run, single offsets are added faster than ranges


class _Version(msgspec.Struct):
    version: int
    """Format version, read first."""


class _Text(msgspec.Struct):
    """The stored text of `OffsetSets`.

    Attributes:
        version: format version of the text.
        checksum: xxh3-64 of the sets, as hexadecimal digits.
        partitions: by source partition, the roaring bitmap of its offsets in base64.
    """

    version: int
    checksum: str
    partitions: dict[str, str]


class OffsetSets:
    """A set of offsets (0 to 2^63 - 1) for each source partition. Partitions without offsets do not count."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[str, BitMap64] = {}

    def add(self, rows: pa.RecordBatch | pa.Table, provenance: Provenance) -> None:
        """Add the offsets of rows. Integer partitions are named by their decimal text. Raises ConfigurationError for a
        missing or wrong provenance column, and SourceError for a row without partition or valid offset."""
        self._add_columns(
            _column(rows, provenance.partition_column), _column(rows, provenance.offset_column), provenance
        )

    def add_origins(self, origins: Origins, provenance: Provenance) -> None:
        self._add_columns(origins.partitions, origins.offsets, provenance)

    def _add_columns(self, partitions: pa.Array, offsets: pa.Array, provenance: Provenance) -> None:
        if not pa.types.is_integer(offsets.type):
            raise _wrong_type(provenance.offset_column, offsets.type, "an integer column")
        named = partitions.type.value_type if pa.types.is_dictionary(partitions.type) else partitions.type
        if not (pa.types.is_integer(named) or pa.types.is_string(named) or pa.types.is_large_string(named)):
            raise _wrong_type(provenance.partition_column, partitions.type, "a text or integer column")
        if len(offsets) == 0:
            return
        if len(offsets) <= _FEW_ROWS and offsets.type == pa.int64():
            self._add_few(partitions.to_pylist(), offsets.to_pylist(), provenance)
            return
        encoded = partitions.dictionary_encode()
        names = encoded.dictionary
        if encoded.null_count or names.null_count or offsets.null_count:
            raise _no_origin(provenance, "a row without its source partition or offset")
        values = (offsets if offsets.type == pa.int64() else offsets.cast(pa.int64())).to_numpy()
        lowest = int(values.min())
        if lowest < 0:
            raise _no_origin(provenance, f"offset {lowest}")
        if len(names) == 1:
            self._add(str(names[0].as_py()), values)
            return
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        for name, group in zip(names.to_pylist(), np.split(values[order], ends[:-1]), strict=True):
            if len(group):
                self._add(str(name), group)

    def _add_few(self, partitions: list[object], offsets: list[int | None], provenance: Provenance) -> None:
        for partition, offset in zip(partitions, offsets, strict=True):
            if partition is None or offset is None:
                raise _no_origin(provenance, "a row without its source partition or offset")
            if offset < 0:
                raise _no_origin(provenance, f"offset {offset}")
            self._sets.setdefault(str(partition), BitMap64()).add(offset)

    def add_range(self, partition: str, low: int, high: int) -> None:
        if low < high:
            self._sets.setdefault(partition, BitMap64()).add_range(low, high)

    def partitions(self) -> list[str]:
        return sorted(self._sets)

    def count(self, partition: str | None = None) -> int:
        if partition is not None:
            return len(self._of(partition))
        return sum(len(offsets) for offsets in self._sets.values())

    def offsets(self, partition: str) -> Iterator[int]:
        return iter(self._sets.get(partition, ()))

    def ranges(self, partition: str) -> Iterator[tuple[int, int]]:
        """Yield a partition's gap-free ranges [low, high), ascending, in O(ranges)."""
        offsets = self._sets.get(partition)
        if offsets:
            low, end = offsets.min(), offsets.max() + 1
            complement = offsets.flip(low, end + 1)
            while low < end:
                high = complement.next_set_bit(low)
                yield low, high
                low = offsets.next_set_bit(high) if high < end else end

    def union(self, other: OffsetSets) -> OffsetSets:
        names = self._sets.keys() | other._sets.keys()
        return _of((name, self._of(name) | other._of(name)) for name in names)

    def intersection(self, other: OffsetSets) -> OffsetSets:
        names = self._sets.keys() & other._sets.keys()
        return _of((name, self._of(name) & other._of(name)) for name in names)

    def difference(self, other: OffsetSets) -> OffsetSets:
        return _of((name, offsets - other._of(name)) for name, offsets in self._sets.items())

    def update(self, other: OffsetSets) -> None:
        for name, offsets in other._sets.items():
            self._sets[name] = self._of(name) | offsets

    def to_text(self) -> str:
        """Return one line of JSON. Equal sets may have different texts."""
        raw: dict[str, bytes] = {}
        for name in self.partitions():
            bitmap = BitMap64(self._sets[name])
            bitmap.run_optimize()
            raw[name] = bitmap.serialize()
        text = _Text(
            OFFSETS_VERSION, _checksum(raw), {name: base64.b64encode(part).decode() for name, part in raw.items()}
        )
        return msgspec.json.encode(text).decode()

    @classmethod
    def from_text(cls, text: str) -> OffsetSets:
        """Decode `to_text`; raises UnknownVersionError or CorruptError."""
        try:
            result = from_json(text, _Version).version
            if result != OFFSETS_VERSION:
                raise UnknownVersionError(
                    "a list of published offsets, of a file's footer or a ledger row, has an unknown format version",
                    expected=f"version {OFFSETS_VERSION}",
                    found=f"version {result}",
                    todo="run the version of distcommit that wrote the list. If no such version exists, the number is"
                    " damaged: restore the file or the ledger from a backup; `distcommit audit` names what is"
                    " unreadable",
                )
            parsed = from_json(text, _Text)
            raw = {name: base64.b64decode(part, validate=True) for name, part in parsed.partitions.items()}
        except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
            raise _corrupt(f"{error}: {text[:60]!r}") from error
        # The checksum is compared before the bitmap library reads a byte. With 120,000 damaged bitmaps, pyroaring 1.2
        # never crashed the process, but accepted one in twelve of those with changed bytes as another set.
        if _checksum(raw) != parsed.checksum:
            raise _corrupt(f"checksum {_checksum(raw)} instead of {parsed.checksum}")
        try:
            return _of((name, BitMap64.deserialize(part)) for name, part in raw.items())
        except (ValueError, IndexError, OverflowError) as error:
            raise _corrupt(str(error)) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSets) and self._sets == other._sets

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def __repr__(self) -> str:
        return f"OffsetSets({ {name: len(self._sets[name]) for name in self.partitions()} })"

    def _of(self, partition: str) -> BitMap64:
        map64 = self._sets.get(partition)
        return BitMap64() if map64 is None else map64

    def _add(self, partition: str, offsets: npt.NDArray[np.int64]) -> None:
        bitmap = self._sets.setdefault(partition, BitMap64())
        breaks = (offsets[1:] - offsets[:-1] != 1).nonzero()[0]
        if len(breaks) == 0:
            bitmap.add_range(int(offsets[0]), int(offsets[-1]) + 1)
            return
        if (len(breaks) + 1) * _ROWS_PER_RUN > len(offsets) > _ROWS_PER_RUN:
            bitmap |= BitMap64(array("Q", offsets.tobytes()))  # 4 times faster than from a numpy array
            return
        starts = offsets[np.concatenate(([0], breaks + 1))].tolist()
        ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))].tolist()
        for first, last in zip(starts, ends, strict=True):
            bitmap.add_range(first, last + 1)


def parsed(text: str) -> OffsetSets:
    """Decode a text, which may be empty; raises the errors of `from_text`."""
    return OffsetSets.from_text(text) if text else OffsetSets()


def offsets_of(ranges: Iterable[SkippedRange]) -> OffsetSets:
    """Return the offsets of ranges, without those that are not integers."""
    sets = OffsetSets()
    for skipped in ranges:
        if isinstance(skipped.low, int) and isinstance(skipped.high, int):
            sets.add_range(skipped.partition, skipped.low, skipped.high)
    return sets


def _of(parts: Iterable[tuple[str, BitMap64]]) -> OffsetSets:
    sets = OffsetSets()
    sets._sets = {name: offsets for name, offsets in parts if offsets}
    return sets


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    if rows.schema.names.count(name) != 1:
        raise ConfigurationError(
            "the records lack a provenance column",
            id="PROVENANCE_INVALID",
            expected=f"one column {name!r}",
            found=f"columns {', '.join(rows.schema.names)}",
            todo="keep the source's provenance columns in every converter, also of rejected records",
        )
    column = rows.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _checksum(raw: dict[str, bytes]) -> str:
    digest = xxh3_64()
    for name in sorted(raw):
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)} {len(raw[name])} ".encode() + encoded + raw[name])
    return digest.hexdigest()


def _wrong_type(column: str, value: pa.DataType, expected: str) -> ConfigurationError:
    return ConfigurationError(
        "a provenance column has the wrong type",
        id="PROVENANCE_INVALID",
        expected=expected,
        found=str(value),
        todo="leave the source's provenance columns as they are in every converter",
        column=column,
    )


def _no_origin(provenance: Provenance, actual: str) -> SourceError:
    return SourceError(
        "a record has no source offset",
        expected=f"a partition in {provenance.partition_column!r} and an offset >= 0 in {provenance.offset_column!r}",
        found=actual,
        todo="correct the source or the converter that returns this row",
    )


def _corrupt(actual: str) -> CorruptError:
    return CorruptError(
        "a list of published offsets can't be read",
        id="PUBLISHED_FILE_CORRUPT",
        expected="a list as distcommit wrote it into a file's footer or a ledger row",
        found=actual,
        todo="restore the file or the ledger from a backup; `distcommit audit` names what is unreadable",
    )
