"""Reader of Avro container files into Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from distcommit.avro.container_format import MAX_BLOCK_BYTES, Header, read_blocks, read_header
from distcommit.avro.datum_ends import skip_of
from distcommit.avro.datum_reader import AvroReader, parse
from distcommit.avro.lockstep_decoding import Datums, Skip
from distcommit.schemas.schema_size_limits import (
    MAX_COLUMNS,
    MAX_NESTING,
    MAX_SCHEMA_BYTES,
    MOST_LEVELS,
    Expansion,
    SchemaTooLargeError,
    UnusableSchemaError,
)

_BATCH_ROWS = 8192
_BATCH_BYTES = 4 << 20
_MAX_EMPTY_RECORDS = 65_536
"""How many more records than bytes a block may have. Records of null fields take no bytes."""


@dataclass(frozen=True, slots=True)
class _Limits:
    schema_bytes: int = MAX_SCHEMA_BYTES
    columns: int = MAX_COLUMNS
    levels: int = MAX_NESTING
    block_bytes: int = MAX_BLOCK_BYTES


_INPUT_FILES = _Limits()
_WRITTEN_FILES = _Limits(MAX_BLOCK_BYTES, 1_000_000, MOST_LEVELS + 2, (1 << 31) - (1 << 16))
"""Limits for files that `container_writer` wrote. A block can have a single record as large as Arrow's 32-bit offsets
allow. The levels include the root and the innermost type.
"""


def read_batches(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Yield the records of an input file in batches of at most 8,192. All columns are nullable.

    Raises:
        ValueError: if this is not an Avro file, its schema has no columns, a record is faulty, or a limit is exceeded.
    """
    header = read_header(stream)
    yield from _batches(stream, header, _reader(header, _INPUT_FILES, keeps_required=False), _INPUT_FILES)


def read_table(stream: BinaryIO) -> pa.Table:
    """Return the records of a file that `container_writer` wrote. Columns whose type is a union with null are nullable.

    Raises ValueError if the file is damaged.
    """
    header = read_header(stream)
    reader = _reader(header, _WRITTEN_FILES, keeps_required=True)
    return pa.Table.from_batches(_batches(stream, header, reader, _WRITTEN_FILES), schema=reader.schema)


def _reader(header: Header, limits: _Limits, keeps_required: bool) -> AvroReader:
    if (size := len(header.schema)) > limits.schema_bytes:
        raise SchemaTooLargeError(f"its schema has {size} bytes, and at most {limits.schema_bytes} are allowed")
    try:
        schema = parse(header.schema)
        if not isinstance(schema.root, dict) or schema.root.get("type") != "record":
            raise UnusableSchemaError("its schema must be a record")
        expansion = Expansion(max_columns=limits.columns, max_levels=limits.levels)
        return AvroReader(schema, None, "", expansion, keeps_required)
    except RecursionError as error:
        raise SchemaTooLargeError("its schema is nested too deep") from error


def _batches(stream: BinaryIO, header: Header, reader: AvroReader, limits: _Limits) -> Iterator[pa.RecordBatch]:
    """Yield records. A damaged block raises ValueError after all records of earlier blocks."""
    skip, batch = skip_of(reader.record), _Batch(reader)
    try:
        for number, (count, data) in enumerate(read_blocks(stream, header, limits.block_bytes)):
            if count > len(data) + _MAX_EMPTY_RECORDS:
                raise ValueError(
                    f"block {number} claims {count} records in {len(data)} bytes, and at most {_MAX_EMPTY_RECORDS}"
                    " more records than bytes are allowed"
                )
            if not batch.has_room(count, len(data)):
                yield from batch.decode()
            position = 0
            for first in range(0, count, _BATCH_ROWS):
                if first:
                    yield from batch.decode()
                ends = _datum_ends(skip, data, position, min(_BATCH_ROWS, count - first), f"block {number}", first)
                batch.add(data[position : ends[-1]], position, ends, number, first)
                position = ends[-1]
            if position < len(data):
                raise ValueError(f"block {number} has bytes left after its records")
    except ValueError:
        yield from batch.decode()
        raise
    yield from batch.decode()


def _datum_ends(skip: Skip, data: bytes, position: int, count: int, block: str, first: int) -> list[int]:
    ends: list[int] = []
    try:
        for _ in range(count):
            position = skip(data, position)
            ends.append(position)
    except (IndexError, ValueError) as error:
        reason = "the block ends within it" if isinstance(error, IndexError) else error
        raise ValueError(f"{block}: record {first + len(ends)}: {reason}") from error
    if position > len(data):
        raise ValueError(f"{block} ends within one of its records")
    return ends


@dataclass(slots=True)
class _Batch:
    """Records of several blocks, decoded in one call because each call costs time."""

    reader: AvroReader
    parts: list[bytes] = field(default_factory=list)
    """Bytes of the records, by call of `add`."""
    size: int = 0
    offsets: list[int] = field(default_factory=lambda: [0])
    """Offsets in the joined parts: 0, then the end of each record."""
    origins: list[tuple[int, int, int]] = field(default_factory=list)
    """For each part: the index of its first record in this batch, the block, and that record's index in the block."""

    def has_room(self, count: int, size: int) -> bool:
        return len(self.offsets) - 1 + count <= _BATCH_ROWS and self.size + size <= _BATCH_BYTES

    def add(self, data: bytes, begin: int, ends: list[int], block: int, first: int) -> None:
        """Add records: their bytes, begin and ends as offsets in the block, and the index of the first."""
        self.origins.append((len(self.offsets) - 1, block, first))
        self.parts.append(data)
        self.offsets += [end - begin + self.size for end in ends]
        self.size += len(data)

    def decode(self) -> Iterator[pa.RecordBatch]:
        """Yield and clear the records. A faulty record raises ValueError after all records of earlier blocks."""
        offsets, parts, origins = np.array(self.offsets), self.parts, self.origins
        self.offsets, self.parts, self.origins, self.size = [0], [], [], 0
        if len(offsets) == 1:
            return
        data = np.frombuffer(b"".join(parts), np.uint8)
        records, faults = self.reader.read(Datums.of(data, offsets[:-1], offsets[1:]))
        if faults:
            row = min(faults)
            begin, block, first = max(origin for origin in origins if origin[0] <= row)
            if begin:
                yield records.slice(0, begin)
            raise ValueError(f"block {block}: record {first + row - begin}: {faults[row]}")
        yield records
