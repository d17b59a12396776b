"""Answers with text that is not Unicode: the decoder rejects the record, and the rest of the list is read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.constructs.json_decoding.json_reader import JsonReader
from distcommit.core.errors import SourceError
from distcommit.sources.rest.responses import Answer, value_at
from tests.unit.sources.rest.rest_pages import Pages, paging_of, values_of

LONE: Sequence[bytes] = [
    rb'{"i":1,"s":"\ud800"}',
    rb'{"i":1,"s":"\uDFFF x"}',
    rb'{"i":1,"\ud800":1}',
    rb'{"\ud800":[{"a":"]}"}], "i" : 1 }',
    rb'{"s":"\\\"\ud800","i":1}',
]


@pytest.mark.parametrize("record", LONE)
def test_lone_surrogate_rejects_its_record_and_not_its_list(record: bytes) -> None:
    pages = b"[" + record + b' ,{"i":2}]', b'{"x":"\\ud800","rows":[]}'
    assert values_of(Pages(pages[0])) == [record, b'{"i":2}']
    assert Answer.parse(pages[1], "rows").records == []
    read = JsonReader(pa.schema([("i", pa.int64())])).read(pa.array([record, b'{"i":2}']))
    assert list(read.rejected) == [0]


def test_answer_that_begins_with_a_byte_order_mark_is_read() -> None:
    assert values_of(Pages(b'\xef\xbb\xbf[{"i":1}]')) == [b'{"i":1}']


BROKEN = [b'{"i":1,"n":NaN}', b'{"i":1,"s":"\x01"}', rb'{"i":1,"s":"\ud800","n":NaN}', b'{"i":1']


@pytest.mark.parametrize("record", BROKEN)
def test_answer_that_is_not_json_fails_its_list(record: bytes) -> None:
    with pytest.raises(SourceError, match="can't be read"):
        values_of(Pages(b"[" + record + b"]"), paging=paging_of())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-16", exclude_categories=())),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)


@pytest.mark.thorough
@given(st.lists(st.fixed_dictionaries({"i": st.integers(0, 99), "v": VALUES}), max_size=4), st.sampled_from([None, 1]))
def test_records_are_the_received_bytes(records: list[dict[str, object]], indent: int | None) -> None:
    body = json.dumps({"lone": "\ud800", "rows": records}, indent=indent).encode()
    records_read = Answer.parse(body, "rows").records
    assert [json.loads(record) for record in records_read] == records
    assert [value_at(record, "i") for record in records_read] == [record["i"] for record in records]
