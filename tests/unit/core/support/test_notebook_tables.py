"""Results in a notebook: HTML tables of their fields, with names and messages escaped."""

from __future__ import annotations

from html.parser import HTMLParser

from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.core.records.run_counts import RunCounts
from distcommit.engine.driver.run import RunResult

HOSTILE = '<img src=x onerror="alert(1)">&\x1b[2J\u202e'


class Texts(HTMLParser):
    """A parser that collects tags and texts as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_result_is_a_table_of_its_non_empty_fields() -> None:
    counts = RunCounts(datasets_published=3, records_published=1_204)
    shown = Texts(RunResult("run", 7, True, True, {"drain": 0.254}, counts, [])._repr_html_())
    assert shown.tags == {"div", "table", "tbody", "tr", "th", "td"}
    for name, value in (("epoch", "7"), ("succeeded", "True"), ("drain", "0.25"), ("records_published", "1204")):
        assert shown.texts[shown.texts.index(name) + 1] == value
    assert "datasets_failed" not in shown.texts, "the field is 0"
    assert "error" not in shown.texts, "the field is empty"


def test_names_and_messages_are_rendered_as_text() -> None:
    """Markup is shown literally. Characters that reverse the text direction are escaped."""
    status = StatusResult(HOSTILE, "/s", 4, 3, "", [], {HOSTILE: HOSTILE}, problems=[Problem("X", HOSTILE, HOSTILE)])
    shown = Texts(status._repr_html_())
    assert shown.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert shown.texts.count(HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")) == 5


def test_first_rows_of_a_long_table_are_shown() -> None:
    troubles = [Problem("X", f"trouble {number}", "none") for number in range(1_500)]
    shown = Texts(StatusResult("job", "/s", 4, 3, "", [], {}, problems=troubles)._repr_html_())
    assert "trouble 199" in shown.texts
    assert "trouble 200" not in shown.texts
    assert "and 1,300 more" in shown.texts
