"""Lists whose pages repeat, miss or end too early: what the REST source requires of a server, page by page."""

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
    """Times are not unique, so that a page that begins too early cannot be told from two equal records."""
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
def test_pages_end_by_the_total_of_an_answer_though_one_is_empty(settings: dict[str, Any], total: int) -> None:
    server = Pages(*({"of": {"total": total}, "rows": rows} for rows in (page(1, 2), [], page(5))))
    paging = paging_of(until="total", path="of.total", **settings)
    assert read_from(server, records="rows", paging=paging) == [1, 2, 5]
    assert server.asked == [1, 2, 3]


def by_total(total: int, *pages: list[dict[str, Any]], step: int = 1) -> Pages:
    """A server that counts records, by numbers of pages or, with `step`, by offsets from 1 on."""
    answers = {1 + index * step: {"total": total, "rows": rows} for index, rows in enumerate(pages)}
    return Pages(*(answers.get(number) for number in range(1, max(answers) + 1)))


@pytest.mark.parametrize("pages", [(page(1, 2), page(3, 4)), (page(1, 2, 3), page(4))], ids=["each", "last"])
@pytest.mark.parametrize("settings", [{"size": 3}, {"step": 3}], ids=["pages", "offsets"])
def test_server_that_gives_smaller_pages_than_its_total_is_counted_by_is_refused(
    settings: dict[str, int], pages: tuple[Any, ...]
) -> None:
    """It cuts pages at a size of its own, so that the next number begins behind records that it has not given."""
    server = by_total(5, *pages, step=settings.get("step", 1))
    with pytest.raises(SourceError, match="fewer records than the server's total requires") as raised:
        read_from(server, records="rows", paging=paging_of(until="total", path="total", **settings))
    assert "source.paging.size" in str(raised.value)


def test_offsets_end_by_the_total_though_one_page_is_empty_and_the_last_one_short() -> None:
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


def test_numbers_go_on_as_long_as_an_answer_names_a_next_page() -> None:
    server = Pages(page(1), [], page(2), page(9), links=(1, 2))
    assert read_from(server, paging=paging_of(until="link")) == [1, 2]
    answers = [{"more": more, "rows": rows} for more, rows in ((True, page(1)), (True, []), (False, page(2)))]
    assert read_from(
        Pages(*answers, {"rows": page(9)}), records="rows", paging=paging_of(until="link", path="more")
    ) == [1, 2]


def test_time_list_whose_next_reading_begins_with_other_pages_is_read_to_its_end() -> None:
    """The one more request from the newest record on goes through its pages, not only through the first of them."""

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
def test_paging_settings_that_do_not_fit_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PageNumberPaging.model_validate({"type": "page", "param": "page", **settings})
