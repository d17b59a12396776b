"""The batch reader's searches in the text of a whole batch, at any position."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distcommit.constructs.calendar_times import are_uniform_utc_times
from distcommit.constructs.json_decoding import json_reader
from distcommit.constructs.json_decoding.json_reader import (
    _NOT_FINITE,
    _PART_BYTES,
    _ZONED,
    JsonReader,
    _all_match,
    _contains,
    _is_deep,
    _joined,
    _may_hide,
)


def hides(*values: bytes) -> bool:
    texts, joined = _joined(pa.array(values, pa.binary()))
    return joined is None or _may_hide(texts, joined)


@pytest.mark.parametrize("place", [0, 1, _PART_BYTES - 2, _PART_BYTES - 1, _PART_BYTES, 2 * _PART_BYTES - 1])
@pytest.mark.parametrize("wanted", [b"\0", b"NaN"])
def test_text_across_a_part_boundary_is_found(wanted: bytes, place: int) -> None:
    text = b"N" * place + wanted + b"N" * _PART_BYTES
    assert _contains(pa.py_buffer(text), wanted)
    assert not _contains(pa.py_buffer(text.replace(wanted, b"Nb")), wanted)


@pytest.mark.parametrize(("opened", "deep"), [(300, False), (301, True)])
def test_deep_value_among_many_shallow_ones_is_detected(opened: int, deep: bool) -> None:
    values = [b'{"a":[1]}'] * 400 + [b'{"a":' + b"[" * (opened - 1) + b"]" * (opened - 1) + b"}"]
    values.append(b'{"a":"' + b"x" * 700 + b'"}')
    assert _is_deep(pa.array(values), pa.py_buffer(b"\n".join(values))) == deep
    assert hides(*values) == deep


def test_many_shallow_values_are_not_deep() -> None:
    values = [b'{"a":[[1],[2]]}'] * 1000
    values.append(b'{"a":"' + b"x" * 700 + b'"}')
    assert not _is_deep(pa.array(values), pa.py_buffer(b"\n".join(values)))
    assert not hides(*values)


letters = [bytes([letter]) for letter in b"{[}]:, \n\0aNI\xff"]
parts = st.sampled_from([*letters, b"NaN", b"Na", b"Inf", b"In", b"Infinity", b"\xc3\xa9", b"abcdefgh"])


@pytest.mark.parametrize("word", [b"NaN", b"Infinity"])
def test_non_finite_number_is_detected_across_parts(word: bytes) -> None:
    with patch.object(json_reader, "_PART_BYTES", 16):
        for place in range(32):
            assert hides(b'{"a":%s}' % (b" " * place + word))
            assert not hides(b'{"a":"%s"}' % (b" " * place + word))


@given(st.lists(st.lists(parts).map(lambda pieces: b"{%s}" % b"".join(pieces)), min_size=1))
def test_single_pass_search_equals_the_search_value_by_value(values: list[bytes]) -> None:
    joined = b"\n".join(values)
    try:
        is_text = "\0" not in joined.decode()
    except UnicodeDecodeError:
        is_text = False
    is_long = max(map(len, values)) > 6
    is_deep = is_long and any(value.count(b"{") + value.count(b"[") > 3 for value in values)
    try:
        texts, joined_text = _joined(pa.array(values, pa.binary()))
    except pa.ArrowInvalid:
        joined_text = None
    assert (joined_text is not None) == is_text
    if joined_text is not None:
        assert joined_text.to_pybytes() == joined
        with patch.object(json_reader, "_PART_BYTES", 8), patch.object(json_reader, "_SHALLOW", 3):
            assert _may_hide(texts, joined_text) == (bool(_NOT_FINITE.search(joined)) or is_deep)


@pytest.mark.parametrize("nested", [pa.list_, lambda below: pa.struct({"a": below})])
def test_batch_reader_rejects_values_deeper_than_its_limit(nested: Callable[[pa.DataType], pa.DataType]) -> None:
    kind = pa.int64()
    for _ in range(3):
        kind = nested(kind)
    reader, text = JsonReader(pa.schema({"a": kind})), json.dumps({"a": deep_value(kind)})
    with patch.object(json_reader, "_SHALLOW", 5):
        assert reader._at_once(pa.array([text, "{}"])) is not None
    with patch.object(json_reader, "_SHALLOW", 3):
        assert reader._at_once(pa.array([text, "{}"])) is None
        assert reader.read_if_no_new_field(pa.array([text, "{}"]), pa.schema({"a": kind})) is None


def deep_value(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [deep_value(kind.value_type)]
    return {"a": deep_value(kind.field(0).type)} if pa.types.is_struct(kind) else 10**18


zones = st.sampled_from(["Z", "Z", "Z", "", "z", "+00:00"])
fractions = st.sampled_from(["", ".", ".5", ".123", ".123456", ".1234567", ",5"])
a_time = st.builds(
    lambda when, fraction, zone: f"{when:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + fraction + zone,
    st.datetimes(),
    fractions,
    zones,
)
letters_of_times = st.sampled_from("0123456789-T:.Z+ ")


@given(st.lists(a_time, min_size=1, max_size=3), st.integers(0, 80), letters_of_times | st.none())
@example(["2024-02-29T12:00:00Z"], 11, "2")
@example(["2024-02-29T14:00:00Z"], 11, "2")
@example(["2024-02-29T12:00:00Z"], 14, "6")
@example(["2024-02-29T12:00:00Z"], 17, "6")
@example(["0999-02-28T12:00:00Z"], 80, None)
@example(["9899-02-28T12:00:00Z", "9900-02-28T12:00:00Z"], 80, None)
@example(["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.5Z"], 80, None)
def test_times_recognized_without_a_regular_expression_match_it(
    texts: list[str], place: int, letter: str | None
) -> None:
    """Also covers a first text with one changed letter."""
    if letter is not None and place < len(texts[0]):
        texts = [texts[0][:place] + letter + texts[0][place + 1 :], *texts[1:]]
    array = pa.array(["", *texts])[1:]
    matches, alike = _all_match(array, _ZONED), are_uniform_utc_times(array)
    assert matches or not alike
    if len({len(text) for text in texts}) == 1 and all(text.endswith("Z") for text in texts):
        assert alike == matches  # otherwise the fast path would be useless


def test_times_with_nulls_and_empty_arrays_are_not_recognized() -> None:
    assert not are_uniform_utc_times(pa.array(["2024-02-29T12:00:00Z", None]))
    assert not are_uniform_utc_times(pa.array([], pa.string()))
