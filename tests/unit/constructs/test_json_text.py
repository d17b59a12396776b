"""What JSON at once looks for in the text of a whole batch, wherever it stands."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from distcommit.constructs.json_records import _PART_BYTES, _contains, _joined, _may_be_deep


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
    lengths = np.array([len(value) for value in values])
    assert _may_be_deep(pa.py_buffer(b"\n".join(values)), lengths) == deep
    assert (_joined(pa.array(values)) is None) == deep


def test_many_shallow_values_are_not_deep() -> None:
    values = [b'{"a":[[1],[2]]}'] * 1000
    assert not _may_be_deep(pa.py_buffer(b"\n".join(values)), np.array([len(value) for value in values]))
