"""`distcommit report`: one page that needs nothing else, in which no name and no message is more than text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.inspection.problems.job_kinds import RUN_FAILED
from distcommit.app.inspection.run_report import MOST_DATASETS
from distcommit.app.job import Job
from distcommit.cli.web.report_page import report_page, spans_path
from tests.jobs.reported_run import EPOCH, HOSTILE, make_reported_job
from tests.unit.cli.test_cli import JOB, invoke, last_json

TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "a",
        "header",
        "p",
        "button",
        "span",
        "main",
        "footer",
        "script",
    ),
    *("h1", "h2", "h3", "bdi", "time", "nav", "ul", "li", "section", "dl", "div", "dt", "dd", "small", "table"),
    *("caption", "thead", "tbody", "tr", "th", "td", "svg", "rect", "path", "b", "code", "form", "label", "input"),
    *("select", "option", "details", "summary", "pre"),
}
DANGEROUS = {"\x1b", "\x07", "\r", "\x00", "\x85", "\u2028", "\u2029", "\u202e", "\u2066"}


class Seen(HTMLParser):
    """Tags, attributes and texts of a page, as a browser would take them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.texts: list[str] = []
        self.inline: dict[str, list[str]] = {"style": [], "script": []}
        self._in = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._in = tag
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in self.inline:
            self.inline[self._in].append(data)
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reported_job(tmp_path_factory.mktemp("reported"))


@pytest.fixture(scope="module")
def page(job_file: Path) -> str:
    return report_page(Job.from_file(job_file).report())


def test_the_command_writes_the_page_of_the_newest_run_and_replaces_what_was_there(
    job_file: Path, page: str, tmp_path: Path
) -> None:
    output = tmp_path / "report.html"
    output.write_text("old")
    result = invoke("report", job_file, "-o", output)
    assert result.exit_code == 0
    assert f"run {EPOCH} is FAILED" in result.stdout
    made = re.compile(r"Made by distcommit at <time[^/]*/time>")
    assert made.sub("", output.read_text()) == made.sub("", page)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    told = last_json(invoke("report", job_file, str(EPOCH), "-o", output, "--json"))
    assert (told["epoch"], told["datasets"], told["left_out"]) == (EPOCH, 60, 0)
    assert told["size_bytes"] == output.stat().st_size


def test_it_has_every_part(page: str) -> None:
    seen = Seen(page)
    text = " ".join(" ".join(seen.texts).split())
    for part in (
        "Where the time went",
        "Time to visibility",
        "Slowest steps",
        "Failures",
        "Skew",
        "Quality",
        "Datasets",
        "shop-3.orders-0010",
        "row_count",
        "1 of 1 work units failed",
        "57 published, 3 failed",
        "61 of 70 asked for, 8 to be tried again, 1 never to be made; 4.20 s at targets",
        "ingest 7",
        "worker-1 3001",
        '"sasl.password": "***"',
        "RUN_FAILED",
        "The last run failed",
        RUN_FAILED.impact,
    ):
        assert part in text, part
    assert len(re.findall(r'<path class="read" d="M', page)) == 8
    assert len(re.findall(r'<path class="commit" d="M', page)) == 8


def test_hostile_names_and_messages_are_text_and_nothing_else(page: str) -> None:
    seen = Seen(page)
    assert seen.tags <= TAGS
    assert not [name for name in seen.attributes if name.startswith("on") or name in ("style", "src", "srcset")]
    assert len(seen.inline["script"]) == len(seen.inline["style"]) == 1
    assert not DANGEROUS & set(page)
    text = "".join(seen.texts)
    for name in HOSTILE[:5]:
        assert name in text, "it can be read, as it is"
    assert "invoice\\u202egpj.exe\\u2066x" in text
    assert "\\x1b[31mred\\x07\\r\\nforged" in text
    assert "{{ 7 * 7 }}" in text, "no template"


def test_the_page_runs_and_loads_nothing_but_what_its_policy_names(page: str) -> None:
    seen = Seen(page)
    (policy,) = [value for value in seen.attributes["content"] if "default-src" in value]
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(seen.inline[kind][0].encode()).digest()).decode()
        assert parts.pop(f"{kind}-src") == f"'sha256-{digest}'"
    assert set(parts.values()) == {"'none'"}
    assert {"default-src", "base-uri", "form-action"} == parts.keys()
    assert all(link.startswith("#") for link in seen.attributes["href"])
    assert not re.search(r"https?:|@import|url\(", page.replace("&", "")), "it needs nothing from elsewhere"


def test_it_is_complete_for_a_run_that_died(tmp_path: Path) -> None:
    page = report_page(Job.from_file(make_reported_job(tmp_path / "job", ended=False)).report())
    text = " ".join(" ".join(Seen(page).texts).split())
    assert "it died" in text
    assert "has not told its end" in text
    assert "its tasks died" in text
    assert page.count('<tr><th scope="row">not ended</th>') == 8
    assert not DANGEROUS & set(page)


def test_five_thousand_datasets_are_below_five_megabytes_and_more_are_counted(job_file: Path) -> None:
    report = Job.from_file(job_file).report()
    (failed,) = [row for row in report.datasets if row.dataset == "shop-4.orders-0011"]
    worst = structs.replace(failed, reason="reason " * 70, records=10**9, bytes_read=10**12, files=999, rejected=10**6)
    many = [structs.replace(worst, dataset=f"{'long-name-' * 6}{number:06d}") for number in range(MOST_DATASETS)]
    page = report_page(structs.replace(report, datasets=many, datasets_left_out=45_000))
    assert len(page.encode()) < 5_000_000
    assert page.count('<th scope="row"><bdi>long-name-') == MOST_DATASETS
    assert "45,000 more" in page


def test_a_run_that_there_is_not_is_exit_code_2_and_leaves_no_page(job_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    result = invoke("report", job_file, "99", "-o", output, "--json")
    assert (result.exit_code, last_json(result)["kind"]) == (2, "ConfigurationError")
    assert "the newest epoch is 1" in last_json(result)["error"]
    assert not output.exists()
    empty = tmp_path / "job.yaml"
    empty.write_text(JOB)
    Job.from_file(empty).open_store(create=True)
    result = invoke("report", empty, "-o", output)
    assert result.exit_code == 2
    assert "no run of the job is recorded" in result.stderr


def test_a_page_that_can_not_be_written_is_told(job_file: Path, tmp_path: Path) -> None:
    result = invoke("report", job_file, "-o", tmp_path / "no" / "such" / "report.html")
    assert result.exit_code not in (0, 2)
    assert "the report can't be written" in result.stderr


def test_spans_that_can_not_be_told_apart_are_one_box() -> None:
    assert spans_path([(0, 500)], 0, 1000, 0, 6) == "M0 0h500v6h-500z"
    assert spans_path([(999_999, 1_000_000)], 0, 1_000_000, 6, 4) == "M999 6h1v4h-1z", "it can be seen"
    every = [(at, at + 1) for at in range(0, 100_000, 2)]
    assert spans_path(every, 0, 100_000, 0, 6) == "M0 0h1000v6h-1000z"
    assert spans_path([(5, 5)], 5, 5, 0, 6) == "M0 0h1v6h-1z"
    assert spans_path([], 0, 9, 0, 6) == ""
