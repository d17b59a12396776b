"""Offset paging on a server that returns fewer records a page than the offset advances."""

from __future__ import annotations

import json

import pytest

from distcommit.core.errors import SourceError
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.sources.rest.client import Reply
from distcommit.sources.rest.extractor import RestExtractor
from distcommit.sources.rest.pages import RecordList
from distcommit.sources.rest.paging import PageNumberPaging, Request
from distcommit.sources.rest.watermark_field import ROWS, WatermarkField

FIELD = WatermarkField(field="i", type="integer", since="since", lookback=0, unique=True)


class Server:
    """A server that returns at most `most` of 500 records at once, from an offset on."""

    def __init__(self, most: int) -> None:
        self._most = most

    def get(self, request: Request, urn: str) -> Reply:
        low, offset = int(request.params.get("since", -1)), int(request.params["offset"])
        records = [{"i": number} for number in range(500) if number > low]
        return Reply(json.dumps(records[offset : offset + min(self._most, 100)]).encode(), "")

    def close(self) -> None:
        pass


def read_from(server: Server) -> list[int]:
    paging = PageNumberPaging(type="page", param="offset", first_page=0, step=100)
    listed = RecordList(Request(url="http://h/x"), "", FIELD, paging)
    low = Watermark({"": FIELD.beginning, ROWS: 0}, FIELD.incarnation)
    unit = WorkUnit("0", "d", low, Watermark({}, FIELD.incarnation), 1)
    extraction = RestExtractor(server, {"d": listed}).extract(unit)  # type: ignore[arg-type]
    return [json.loads(value)["i"] for batch in extraction for value in batch.column("value").to_pylist()]


def test_pages_as_large_as_the_offset_step_are_read_to_the_end() -> None:
    assert read_from(Server(100)) == list(range(500))


def test_pages_smaller_than_the_offset_step_fail_and_no_record_is_skipped() -> None:
    with pytest.raises(SourceError, match=r"does not have source\.paging\.step records"):
        read_from(Server(50))
