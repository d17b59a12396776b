"""A server of given pages, and helpers that read from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.sources.rest.client import Reply
from distcommit.sources.rest.extractor import RestExtractor
from distcommit.sources.rest.pages import RecordList
from distcommit.sources.rest.paging import PageNumberPaging, Request
from distcommit.sources.rest.watermark_field import ROWS, WatermarkField

UNIQUE = WatermarkField(field="i", type="integer", since="since", lookback=0, unique=True)
TIMES = WatermarkField(field="i", type="time", since="since", lookback=0)
HIGH = "2024-01-02T00:00:00.000000Z"


class Pages:
    """A server that returns pages by number from 1, and empty pages after the last one, for any `since`."""

    def __init__(self, *pages: Any, links: Sequence[int] = ()) -> None:
        self.pages, self.links = pages, links
        self.asked: list[int] = []

    def get(self, request: Request, urn: str) -> Reply:
        number = int(request.params.get("page", 1))
        self.asked.append(number)
        page = self.pages[number - 1] if number <= len(self.pages) else []
        body = page if isinstance(page, bytes) else json.dumps(page).encode()
        return Reply(body, "/next" if number in self.links else "")

    def close(self) -> None:
        pass


def paging_of(**settings: Any) -> PageNumberPaging:
    return PageNumberPaging.model_validate({"type": "page", "param": "page", **settings})


def values_of(
    server: Any, field: WatermarkField = UNIQUE, records: str = "", paging: PageNumberPaging | None = None
) -> list[bytes]:
    """Return the records that a run reads from the beginning."""
    listed = RecordList(Request(url="http://h/x"), records, field, paging or paging_of())
    low = Watermark({"": field.beginning, ROWS: 0}, field.incarnation)
    high = Watermark({"": HIGH} if field.type == "time" else {}, field.incarnation)
    extraction = RestExtractor(server, {"d": listed}).extract(WorkUnit("0", "d", low, high, 1))
    return [value for batch in extraction for value in batch.column("value").to_pylist()]


def read_from(
    server: Any, field: WatermarkField = UNIQUE, records: str = "", paging: PageNumberPaging | None = None
) -> list[Any]:
    """Return the field `i` of each record that a run reads."""
    return [json.loads(value)["i"] for value in values_of(server, field, records, paging)]
