"""What JSON at once looks for in the text of a whole batch, wherever it stands."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.constructs import json_records
from distcommit.constructs.json_records import _NOT_FINITE, _PART_BYTES, _contains, _is_deep, _joined


@pytest.mark.parametrize("place", [0, 1, _PART_BYTES - 2, _PART_BYTES - 1, _PART_BYTES, 2 * _PART_BYTES - 1])
@pytest.mark.parametrize("wanted", [b"\0", b"NaN"])
def test_what_stands_across_parts_is_found(wanted: bytes, place: int) -> None:
    text = b"N" * place + wanted + b"N" * _PART_BYTES
    assert _contains(pa.py_buffer(text), wanted)
    assert not _contains(pa.py_buffer(text.replace(wanted, b"Nb")), wanted)


@pytest.mark.parametrize(("opened", "deep"), [(300, False), (301, True)])
def test_one_deep_value_among_many_is_seen(opened: int, deep: bool) -> None:
    values = [b'{"a":[1]}'] * 400 + [b'{"a":' + b"[" * (opened - 1) + b"]" * (opened - 1) + b"}"]
    values.append(b'{"a":"' + b"x" * 700 + b'"}')
    assert _is_deep(pa.array(values), pa.py_buffer(b"\n".join(values))) == deep
    assert (_joined(pa.array(values)) is None) == deep


def test_many_shallow_values_are_not_deep() -> None:
    values = [b'{"a":[[1],[2]]}'] * 1000
    values.append(b'{"a":"' + b"x" * 700 + b'"}')
    assert not _is_deep(pa.array(values), pa.py_buffer(b"\n".join(values)))
    assert _joined(pa.array(values)) is not None


letters = [bytes([letter]) for letter in b"{[}]:, \n\0aNI\xff"]
parts = st.sampled_from([*letters, b"NaN", b"Na", b"Inf", b"In", b"Infinity", b"\xc3\xa9", b"abcdefgh"])


@pytest.mark.parametrize("word", [b"NaN", b"Infinity"])
def test_what_is_no_number_is_seen_across_parts(word: bytes) -> None:
    with patch.object(json_records, "_PART_BYTES", 16):
        for place in range(32):
            assert _joined(pa.array([b'{"a":%s}' % (b" " * place + word)])) is None
            assert _joined(pa.array([b'{"a":"%s"}' % (b" " * place + word)])) is not None


@given(st.lists(st.lists(parts).map(lambda found: b"{%s}" % b"".join(found)), min_size=1))
def test_what_is_looked_for_in_one_pass_is_what_is_looked_for_value_by_value(values: list[bytes]) -> None:
    joined = b"\n".join(values)
    try:
        expected = not _NOT_FINITE.search(joined) and "\0" not in joined.decode()
    except UnicodeDecodeError:
        expected = False
    is_long = max(map(len, values)) > 6
    expected = expected and not (is_long and any(value.count(b"{") + value.count(b"[") > 3 for value in values))
    with patch.object(json_records, "_PART_BYTES", 8), patch.object(json_records, "_SHALLOW", 3):
        try:
            found = _joined(pa.array(values, pa.binary()))
        except pa.ArrowInvalid:
            found = None
    assert (found is not None) == expected
    assert found is None or found.to_pybytes() == joined
