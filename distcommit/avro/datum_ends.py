"""Functions that find the ends of consecutive datums: `lockstep_decoding` needs them, and container files lack them.

Only lengths, branch numbers and counts are decoded. `lockstep_decoding` rejects a datum whose values end elsewhere.
"""

from __future__ import annotations

from distcommit.avro import column_decoders
from distcommit.avro.lockstep_decoding import Buffer, Skip, long_at


def skip_of(column: column_decoders.Column) -> Skip:
    """Return a function that skips a value. Raises TypeError for recursion, or a union branch without decoder."""
    match column:
        case column_decoders.Numbers() | column_decoders.Symbols():
            return _skip_long
        case column_decoders.Texts() | column_decoders.Decimals(size=None):
            return _skip_bytes
        case (
            column_decoders.Nulls()
            | column_decoders.Booleans()
            | column_decoders.Reals()
            | column_decoders.Fixed()
            | column_decoders.Decimals()
        ):
            return _fixed(column.min_bytes)
        case column_decoders.Member():
            return skip_of(column.column)
        case column_decoders.Union() if None not in column.branches:
            return _union([skip_of(branch) for branch in column.branches if branch is not None])
        case column_decoders.Record():
            return _record([field for field, _ in column.written])
        case column_decoders.Array(skip=skip) | column_decoders.Map(skip=skip) if skip is not None:
            return _items(skip)
    raise TypeError(f"values of {type(column).__name__} can't be skipped")


def item_skip(items: column_decoders.Column, *, has_key: bool) -> Skip | None:
    """Return a function that skips an array item, with `has_key` a map entry; None if `skip_of` raises TypeError."""
    try:
        return _sequence([_skip_bytes, skip_of(items)]) if has_key else skip_of(items)
    except TypeError:
        return None


def _skip_long(data: Buffer, position: int) -> int:
    while data[position] >= 0x80:
        position += 1
    return position + 1


def _skip_bytes(data: Buffer, position: int) -> int:
    length = data[position]
    if length < 0x80 and not length & 1:
        return position + 1 + (length >> 1)
    length, position = long_at(data, position)
    if not 0 <= length <= len(data) - position:
        raise ValueError("a length is negative, or larger than the rest of the block")
    return position + length


def _fixed(size: int) -> Skip:
    return lambda data, position: position + size


def _sequence(skips: list[Skip]) -> Skip:
    if len(skips) == 1:
        return skips[0]

    def skip(data: Buffer, position: int) -> int:
        for item in skips:
            position = item(data, position)
        return position

    return skip


def _record(fields: list[column_decoders.Column]) -> Skip:
    skips: list[Skip] = []
    size = 0
    for field in fields:
        if isinstance(
            field, column_decoders.Nulls | column_decoders.Booleans | column_decoders.Reals | column_decoders.Fixed
        ):
            size += field.min_bytes
            continue
        if size:
            skips.append(_fixed(size))
        skips.append(skip_of(field))
        size = 0
    return _sequence([*skips, _fixed(size)] if size or not skips else skips)


def _union(branches: list[Skip]) -> Skip:
    def skip(data: Buffer, position: int) -> int:
        branch, position = long_at(data, position)
        if not 0 <= branch < len(branches):
            raise ValueError("a union has no such branch")
        return branches[branch](data, position)

    return skip


def _items(item: Skip) -> Skip:
    def skip(data: Buffer, position: int) -> int:
        while True:
            count, position = long_at(data, position)
            if not count:
                return position
            if count < 0:
                _, position = long_at(data, position)
            if abs(count) > len(data) - position:
                raise ValueError("a count of items is larger than the rest of the block")
            for _ in range(abs(count)):
                position = item(data, position)

    return skip
