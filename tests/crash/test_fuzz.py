"""Damaged bytes yield the documented error from every reader of stored bytes, quickly and within bounded memory."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.checkers.damaged_bytes import INNER
from tests.checkers.fuzz import fuzz, input_of, smallest, wrong_answer
from tests.golden import samples
from tests.golden.stored_bytes import READERS, Reader
from tests.simulation.damage import sealed_segment

READ = {reader.name: reader for reader in READERS}
DEEP = 3000


def nested_rows() -> bytes:
    """Return a segment with a step whose row is nested deeper than Python's stack."""
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(samples.SEGMENTS["intent"].record))
    record[2][0][4][0][2] = b"\x91\x91" + b"\x91" * DEEP + b"\xc0"
    return sealed_segment(msgspec.msgpack.encode(record))


def late_lock() -> bytes:
    return msgspec.json.encode(samples.LOCK).replace(b"1700000000000", b"7" + b"0" * 400)


def table(reader: str, column: str, value: str | None) -> bytes:
    """Return a table with one value in all rows of a column."""
    whole = pq.read_table(pa.BufferReader(READ[reader].samples[0]))
    place, field = whole.schema.get_field_index(column), whole.schema.field(column)
    sink = pa.BufferOutputStream()
    column = pa.array([value] * whole.num_rows, field.type)
    pq.write_table(whole.set_column(place, field.with_nullable(True), column), sink)
    return bytes(sink.getvalue())


FOUND = {
    ("lock", "UnicodeDecodeError"): b'{"owner_id":"\x80"',
    ("lock", "RecursionError"): b'{"":' + b"[" * DEEP,
    ("lock", "OverflowError"): late_lock(),
    ("progress", "RecursionError"): b'{"":' + b"[" * DEEP,
    ("manifest", "RecursionError"): b'{"":' + b"[" * DEEP,
    ("footer", "RecursionError"): b'{"version":1,"":' + b"[" * DEEP,
    ("offsets", "RecursionError"): b'{"version":1,"":' + b"[" * DEEP,
    ("steps", "RecursionError"): nested_rows(),
    ("plan", "RecursionError"): table("plan", "low", '[{},"",' + "[" * DEEP),
    ("task states", "RecursionError"): table("task states", "low", '[{},"",' + "[" * DEEP),
    ("plan", "WrongValueError"): table("plan", "work_unit_id", None),
    ("task states", "WrongValueError"): table("task states", "epoch", None),
    (
        "store marker",
        "WrongValueError",
    ): b'{"format":"distcommit-job","version":1,"job":"job","buckets":0,"store_id":""}',
}
"""Fixed defects that fuzzing found: the reader, its undocumented error, and a small input."""


@pytest.mark.parametrize(
    ("reader", "data"), [pytest.param(key[0], data, id=" ".join(key)) for key, data in FOUND.items()]
)
def test_inputs_that_the_fuzzer_found_yield_the_documented_error(reader: str, data: bytes) -> None:
    assert wrong_answer(READ[reader], data)[0] == ""


def test_damaged_bytes_raise_only_documented_errors() -> None:
    number = 170
    findings = fuzz(number * len(READERS), seed=1, seconds=200)
    assert findings["failures"] == []
    assert findings["inputs"] == number * len(READERS)
    assert set(findings["readers"].values()) == {number}
    assert findings["refused"] > 1_000, "harmless damage tests nothing"
    assert findings["peak_bytes"] < 512 << 20


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_undamaged_bytes_are_read(reader: Reader) -> None:
    for data in reader.samples:
        wrong, refused = wrong_answer(reader, data)
        assert (wrong, refused) == ("", reader.name == "lock"), "a live process holds the lock"


def test_fuzz_inputs_follow_from_the_seed_and_reach_below_the_checksums() -> None:
    reader, data = input_of(3, 41)
    assert input_of(3, 41) == (reader, data)
    assert input_of(4, 41) != (reader, data)
    deep = [input_of(1, number)[1] for number in range(0, 80 * len(READERS), len(READERS))]
    messages = [error_of(READ["segment"], data) for data in deep]
    assert sum(1 for message in messages if "undecodable" in message) >= 3, "the decoder below the checksum was reached"
    assert sum(1 for message in messages if "checksum" in message) >= 3
    assert set(INNER) <= set(READ)


def error_of(reader: Reader, data: bytes) -> str:
    try:
        reader.read(data)
    except reader.may_raise as error:
        return str(error)
    return ""


def test_undocumented_exception_of_a_reader_is_reported_with_a_minimized_input() -> None:
    def careless(data: bytes) -> object:
        if b"x" in data:
            raise KeyError("x")
        return None

    reader = Reader("careless", (b"",), careless)
    assert wrong_answer(reader, b"x") == ("KeyError: 'x'", True)
    assert smallest(reader, b"a" * 100 + b"x" + b"b" * 50, lambda error: error.startswith("KeyError")) == b"x"
