"""Damage to stored bytes: at random places, and below their checksums, where the decoders must reject it."""

from __future__ import annotations

import base64
import io
import random
import re
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.sinks.files.offset_sets import _checksum
from distcommit.stores.state.plan_and_task_state_encoding import encode_plan, encode_task_states
from tests.golden import samples
from tests.simulation.damage import checked_segment, sealed_segment

_HEADS = (
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),
    *(b"\xdd\x00\xff\xff\xff", b"\xc9\x00\x00\x00\x02\xff", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\x00" * 7),
    *(b"\xcb\x7f\xf8" + b"\x00" * 6, b"\xc0", b"\x90", b"\x80", b"\xa0"),
)
"""MessagePack heads: lengths far beyond the data, an extension, large numbers, NaN, empty values."""
_DEEP = (b"\x91" * 3000, b"\x81\xa1a" * 3000, b"[" * 3000, b'{"a":' * 3000, b"[" * 200_000, b"\x91" * 200_000)
_TEXTS = (b"null", b"-1", b"1e999", b"1" * 30, b"1" * 5000, b"NaN", b'"', b"{}", b"[]", b"true", b"0.5", b"\\ud800")
_VERSION = re.compile(rb'(distcommit-segment |"version": ?|distcommit-table-version.{1,4}?)(\d)')
_BOMB_BYTES = 64 << 20
_bombs: list[bytes] = []


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes after one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_DAMAGES)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    return _put(data, rng, lambda old: bytes([(old or b"\0")[0] ^ (1 << rng.randrange(8))]), 1)


def _byte(data: bytes, rng: random.Random) -> bytes:
    return _put(data, rng, lambda old: bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]), 1)


def _length(data: bytes, rng: random.Random) -> bytes:
    """Return four or eight bytes of a damaged length field: zero, the largest value, or off by one."""
    width = rng.choice((1, 2, 4, 8))
    order = rng.choice(("big", "little"))

    def changed(old: bytes) -> bytes:
        number = int.from_bytes(old, "big" if order == "big" else "little")
        new = rng.choice((0, (1 << 8 * width) - 1, 1 << (8 * width - 1), number + 1, number - 1)) % (1 << 8 * width)
        return new.to_bytes(width, "big" if order == "big" else "little")

    return _put(data, rng, changed, width)


def _put(data: bytes, rng: random.Random, new: Callable[[bytes], bytes], width: int) -> bytes:
    place = rng.randrange(len(data)) if data else 0
    return data[:place] + new(data[place : place + width]) + data[place + width :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _remove(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + data[place + rng.randrange(1, 20) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    part = data[place : place + rng.randrange(1, 60)]
    return data[:place] + part * rng.choice((2, 3, 50)) + data[place + len(part) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    over = rng.choice((0, 0, 1, 2))
    new = rng.choice(rng.choice((_HEADS, _HEADS, _TEXTS, _TEXTS, _DEEP)))
    return data[:place] + new + data[place + over :]


def _splice(data: bytes, rng: random.Random) -> bytes:
    other = rng.choice((b"", b"PAR1", b"Obj\x01", b"{}", rng.randbytes(rng.randrange(1, 40)), data))
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _value(data: bytes, rng: random.Random) -> bytes:
    """Replace a number or string in a text."""
    values = list(re.finditer(rb'\d+|"[^"]*"', data))
    if not values:
        return _flip(data, rng)
    match = rng.choice(values)
    return data[: match.start()] + rng.choice((*_TEXTS, *_DEEP)) + data[match.end() :]


def _renumber(data: bytes, rng: random.Random) -> bytes:
    """Replace a digit of the format version in a text."""
    return _VERSION.sub(lambda found: found[1] + str(rng.randrange(10)).encode(), data, count=1)


_DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_renumber, _flip, _byte, _length, _cut, _remove, _repeat, _insert, _splice, _value),
)


def _inner_segment(rng: random.Random) -> bytes:
    """Return a segment with a correct checksum over a damaged record, or a damaged compressed record."""
    segment = samples.SEGMENTS[rng.choice(sorted(samples.SEGMENTS))]
    raw = msgspec.msgpack.encode(segment.record)
    kind = rng.random()
    if kind < 0.01:
        return checked_segment(_bomb(), rng.choice((100, _BOMB_BYTES, 10**12 - 1)))
    if kind < 0.2:
        return checked_segment(damaged(zlib.compress(raw, 1), rng), len(raw))
    changed = damaged(raw, rng)
    return sealed_segment(changed, declared_bytes=rng.choice((None, None, None, None, len(changed) + 1, 0, 10**12 - 1)))


def _inner_steps(rng: random.Random) -> bytes:
    """Return a whole record with a damaged step batch."""
    segment = samples.SEGMENTS[rng.choice(("intent", "intent-sink", "intent-rename"))]
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(segment.record))
    batch = record[2][0][4][0]
    place = rng.choice((0, 1, 2, 2, 2, 2))
    batch[place] = (rng.choice(("", "x", "high-watermark")), rng.choice((0, -1, 2)), damaged(batch[2], rng))[place]
    return sealed_segment(msgspec.msgpack.encode(record))


def _inner_offsets(rng: random.Random) -> bytes:
    """Return offset sets with a correct checksum over damaged bitmaps."""
    text = msgspec.json.decode(samples.offsets().to_text())
    raw = {name: base64.b64decode(part) for name, part in text["partitions"].items()}
    name = rng.choice(sorted(raw))
    raw[name] = damaged(raw[name], rng)
    text["partitions"] = {name: base64.b64encode(part).decode() for name, part in raw.items()}
    text["checksum"] = _checksum(raw)
    return msgspec.json.encode(text)


def _inner_table(data: bytes, rng: random.Random) -> bytes:
    """Return a whole Parquet file with one changed value."""
    table = pq.read_table(io.BytesIO(data))
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    names = [*texts, *["branches"] * len(texts)] if "branches" in table.schema.names else texts
    name = rng.choice(names if rng.random() < 0.8 else table.schema.names)
    values = table[name].to_pylist()
    row = rng.randrange(len(values))
    old = values[row]
    changed: object = None
    if isinstance(old, str):
        changed = damaged(old.encode(), rng).decode(errors="replace")
    elif name == "branches" and old:
        changed = [_inner_result(old[0], rng), *old[1:]]
    values[row] = changed if rng.random() < 0.9 else None
    place = table.schema.get_field_index(name)
    column = pa.array(values, table.schema.field(name).type)
    sink = io.BytesIO()
    pq.write_table(
        table.set_column(place, table.schema.field(name).with_nullable(True), column),
        sink,
        row_group_size=rng.choice((1, 1000)),
    )
    return sink.getvalue()


def _inner_result(result: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a task state's report of a branch, with one changed value."""
    name = rng.choice(["branch", "sink", "holes", "infos"])
    old = result[name]
    if name != "infos":
        return {**result, name: damaged(old.encode(), rng).decode(errors="replace")}
    return {**result, name: [damaged(old[0], rng), *old[1:]] if old else [damaged(b"\xc0", rng)]}


def _bomb() -> bytes:
    if not _bombs:
        _bombs.append(zlib.compress(b"\x91" + b"\xc0" * (_BOMB_BYTES - 1), 9))
    return _bombs[0]


INNER: dict[str, Callable[[random.Random], bytes]] = {
    "segment": _inner_segment,
    "steps": _inner_steps,
    "offsets": _inner_offsets,
    "plan": lambda rng: _inner_table(encode_plan(samples.PLAN), rng),
    "task states": lambda rng: _inner_table(encode_task_states(samples.TASK_STATES), rng),
}
"""By reader: bytes whose outer checks pass and whose inside is damaged."""
