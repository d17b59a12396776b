"""Lists whose pages repeat, omit or end too early: the REST source's requirements on a server, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distcommit.core.errors import SourceError
from distcommit.sources.rest.client import Reply
from distcommit.sources.rest.paging import PageNumberPaging, Request
from tests.unit.sources.rest.rest_pages import TIMES, Pages, paging_of, read_from


def page(*numbers: Any) -> list[dict[str, Any]]:
    return [{"i": number} for number in numbers]


def at(second: int) -> str:
    return f"2024-01-01T00:00:{second:02}Z"


def test_unique_record_repeated_on_the_next_page_is_read_once() -> None:
    assert read_from(Pages(page(1, 2, 3), page(3, 4), page(4))) == [1, 2, 3, 4]


def test_unique_record_repeated_within_a_page_is_read_once() -> None:
    assert read_from(Pages(page(1, 2, 2, 3))) == [1, 2, 3]


def test_two_records_of_one_unique_value_fail_the_work_unit() -> None:
    for pages in ([[{"i": 1, "a": 1}], [{"i": 1, "a": 2}]], [[{"i": 1, "a": 1}, {"i": 1, "a": 2}]]):
        with pytest.raises(SourceError, match="two different records of one value") as raised:
            read_from(Pages(*pages))
        assert "source.watermark.unique" in str(raised.value)


def test_equal_records_on_both_sides_of_a_page_boundary_fail_the_work_unit() -> None:
    """Times are not unique, so that a page that begins too early looks like two equal records."""
    with pytest.raises(SourceError, match="repeats a record of the page before"):
        read_from(Pages(page(at(1), at(2)), page(at(2), at(3))), TIMES)


def test_records_of_one_time_on_both_sides_of_a_page_boundary_are_read() -> None:
    first, second = [{"i": at(1), "n": 1}, {"i": at(1), "n": 1}], [{"i": at(1), "n": 2}]
    assert read_from(Pages(first, second), TIMES) == [at(1)] * 3


@pytest.mark.parametrize("pages", [(page(1), [], page(2)), ([], page(1))])
def test_empty_page_before_others_fails_the_work_unit_and_names_the_setting(pages: tuple[Any, ...]) -> None:
    with pytest.raises(SourceError, match="a page without records is not the last one") as raised:
        read_from(Pages(*pages))
    assert "source.paging.until" in str(raised.value)


def test_short_page_is_the_last_one() -> None:
    server = Pages(page(1, 2), page(3, 4), page(5))
    assert read_from(server, paging=paging_of(until="short_page", size=2)) == [1, 2, 3, 4, 5]
    assert server.asked == [1, 2, 3]


def test_page_longer_than_its_size_fails_the_work_unit() -> None:
    with pytest.raises(SourceError, match=r"source\.paging\.size"):
        read_from(Pages(page(1, 2, 3), page(4)), paging=paging_of(until="short_page", size=2))


@pytest.mark.parametrize(("settings", "total"), [({}, 3), ({"size": 2}, 5)], ids=["pages", "records"])
def test_pages_end_by_the_total_of_an_answer_even_if_a_page_is_empty(settings: dict[str, Any], total: int) -> None:
    server = Pages(*({"of": {"total": total}, "rows": rows} for rows in (page(1, 2), [], page(5))))
    paging = paging_of(until="total", path="of.total", **settings)
    assert read_from(server, records="rows", paging=paging) == [1, 2, 5]
    assert server.asked == [1, 2, 3]


def by_total(total: int, *pages: list[dict[str, Any]], step: int = 1) -> Pages:
    """Return a server that counts its records and pages by number or, with `step`, by offsets from 1."""
    answers = {1 + index * step: {"total": total, "rows": rows} for index, rows in enumerate(pages)}
    return Pages(*(answers.get(number) for number in range(1, max(answers) + 1)))


@pytest.mark.parametrize("pages", [(page(1, 2), page(3, 4)), (page(1, 2, 3), page(4))], ids=["each", "last"])
@pytest.mark.parametrize("settings", [{"size": 3}, {"step": 3}], ids=["pages", "offsets"])
def test_pages_smaller_than_the_total_requires_fail_the_work_unit(
    settings: dict[str, int], pages: tuple[Any, ...]
) -> None:
    """The server limits its pages, so that the next number begins after records that were never returned."""
    server = by_total(5, *pages, step=settings.get("step", 1))
    with pytest.raises(SourceError, match="fewer records than the server's total requires") as raised:
        read_from(server, records="rows", paging=paging_of(until="total", path="total", **settings))
    assert "source.paging.size" in str(raised.value)


def test_offsets_end_by_the_total_even_if_one_page_is_empty_and_the_last_one_short() -> None:
    server = by_total(7, page(1, 2, 3), [], page(7), step=3)
    assert read_from(server, records="rows", paging=paging_of(until="total", path="total", step=3)) == [1, 2, 3, 7]
    assert server.asked == [1, 4, 7]


@pytest.mark.parametrize("total", [None, "many", -1, 1.5, True])
def test_answer_without_its_total_fails_the_work_unit(total: Any) -> None:
    with pytest.raises(SourceError, match="can't be read"):
        read_from(
            Pages({"total": total, "rows": page(1)}), records="rows", paging=paging_of(until="total", path="total")
        )


def test_total_that_shrinks_while_pages_are_read_fails_the_work_unit() -> None:
    """A record was deleted, so that the next page begins one record too late."""
    answers = [{"total": total, "rows": rows} for total, rows in ((5, page(1, 2)), (4, page(4, 5)))]
    with pytest.raises(SourceError, match="shrank"):
        read_from(Pages(*answers), records="rows", paging=paging_of(until="total", path="total", size=2))


def test_page_numbers_continue_while_an_answer_names_a_next_page() -> None:
    server = Pages(page(1), [], page(2), page(9), links=(1, 2))
    assert read_from(server, paging=paging_of(until="link")) == [1, 2]
    answers = [{"more": more, "rows": rows} for more, rows in ((True, page(1)), (True, []), (False, page(2)))]
    assert read_from(
        Pages(*answers, {"rows": page(9)}), records="rows", paging=paging_of(until="link", path="more")
    ) == [1, 2]


def test_time_list_is_read_to_its_end_if_its_last_query_returns_other_pages() -> None:
    """The final query from the newest record on reads all of its pages, not only the first."""

    class Filtered(Pages):
        def get(self, request: Request, urn: str) -> Reply:
            if "since" in request.params:
                self.pages = (page(at(1)), page(at(2)))
            return super().get(request, urn)

    server = Filtered(page(at(1)))
    with pytest.raises(SourceError, match="the server has more records"):
        read_from(server, TIMES)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"until": "short_page"}, "size"),
        ({"until": "total"}, "path"),
        ({"path": "total"}, "path"),
        ({"size": 3}, "size"),
        ({"until": "sometime"}, "until"),
        ({"until": "short_page", "step": 5, "size": 4}, "size"),
    ],
)
def test_incompatible_paging_settings_are_rejected(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PageNumberPaging.model_validate({"type": "page", "param": "page", **settings})
