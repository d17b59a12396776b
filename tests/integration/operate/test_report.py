"""The run report in a real browser: only its own script runs, and it is usable by keyboard, phone and screen reader.

The pages of a real job that is killed and run again are tested as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from playwright.sync_api import Browser, Page

from distcommit.app.demo.killed_run import RunProcess
from distcommit.app.jobs.job import Job
from distcommit.cli.web.html_pages import report_page
from distcommit.cli.web.job_summaries import ServedJobs
from distcommit.cli.web.ui_server import UiServer
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.history.run_records import put_record, read_record
from distcommit.stores.state.job_lock import JobLock
from tests.golden import samples
from tests.integration.parts.held_source import HELD
from tests.jobs.kafka_job import PACKAGE_ROOT
from tests.jobs.reported_run import EPOCH, HOSTILE, make_job_folder, make_reported_job
from tests.servers.chromium import DESKTOP, PHONE, open_browser, shown, violations


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the report of a run with hostile names, and return its URL."""
    folder = tmp_path_factory.mktemp("page")
    report = Job.from_file(make_reported_job(folder / "job")).report()
    (folder / "report.html").write_text(report_page(report), encoding="utf-8")
    return (folder / "report.html").as_uri()


def rows_of(page: Page, column: int) -> list[str]:
    """Return the shown cells of a column of the datasets."""
    cells = page.evaluate(
        "(column) => [...document.getElementById('dataset-rows').rows].filter((row) => !row.hidden)"
        ".map((row) => row.cells[column].textContent)",
        column,
    )
    return [str(item) for item in cells]


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop light", "phone dark"])
def test_axe_finds_no_accessibility_violation(browser: Browser, report: str, size: tuple[int, int], dark: bool) -> None:
    with shown(browser, report, size, dark=dark) as page:
        assert violations(page) == []


def test_hostile_names_and_messages_stay_text_on_the_page(browser: Browser, report: str) -> None:
    messages: list[str] = []
    with shown(browser, "about:blank") as page:
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        page.goto(report)
        names = rows_of(page, 0)
        for name in HOSTILE[:5]:
            assert name in names
        assert page.evaluate("[document.scripts.length, document.images.length]") == [1, 0]
        assert page.evaluate("performance.getEntriesByType('resource').length") == 0
    assert messages == [], "neither an error, nor what its policy refuses"


def test_page_is_not_wider_than_a_phone(browser: Browser, report: str) -> None:
    with shown(browser, report, PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        small = page.evaluate(
            "[...document.querySelectorAll('p, td, th, dd, li, a')]"
            ".filter((each) => parseFloat(getComputedStyle(each).fontSize) < 12).length"
        )
        assert small == 0


def test_reasons_are_visible_on_a_phone_without_scrolling_sideways(browser: Browser, report: str) -> None:
    with shown(browser, report, PHONE) as page:
        reason = page.locator("#dataset-rows tr.bad td:last-child").first.bounding_box()
        assert reason is not None
        assert reason["x"] >= 0
        assert reason["x"] + reason["width"] <= PHONE[0]
        page.fill("#filter-name", "shop-3")
        observed = "[...document.querySelectorAll('#dataset-rows tr')].filter((row) => row.hidden && row.offsetHeight)"
        assert page.evaluate(f"{observed}.length") == 0, "hidden rows take no room"


def test_datasets_are_searched_and_sorted_by_keyboard(browser: Browser, report: str) -> None:
    with shown(browser, report) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        everything = rows_of(page, 0)
        page.focus("#filter-name")
        page.keyboard.type("shop-3")
        shown_names = rows_of(page, 0)
        assert shown_names == [name for name in everything if "shop-3" in name]
        assert page.inner_text("#filter-status") == f"{len(shown_names)} of {len(everything)} shown"
        for _ in range(5):  # the outcome, the table, its first three columns
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Records"
        for order in ("descending", "ascending"):
            page.keyboard.press("Enter")
            numbers = [int(text.replace(",", "") or 0) for text in rows_of(page, 2)]
            assert numbers == sorted(numbers, reverse=order == "descending")
            assert page.get_attribute("#dataset-table th:nth-child(3)", "aria-sort") == order
        assert page.evaluate("document.activeElement.textContent") == "Records", "the focus stays"


def test_served_pages_link_to_each_other(browser: Browser, tmp_path: Path) -> None:
    refused: list[str] = []
    jobs = make_job_folder(tmp_path / "jobs")
    with served(jobs) as server, shown(browser, server.url) as page:
        page.on("console", lambda message: refused.append(message.text))
        page.click("tr:has-text('ended.yaml') th a")
        page.wait_for_selector("#problems")
        page.click("text=All 57 datasets")
        page.wait_for_selector("h1:has-text('Datasets of orders')")
        page.click("text=Job orders")
        page.wait_for_selector("#problems")
        page.click(f"text=run {EPOCH}")
        page.wait_for_selector("#dataset-rows")
        assert "FAILED" in page.title()
        assert violations(page) == []
    assert refused == []


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop light", "phone dark"])
def test_pages_of_a_folder_of_jobs_are_accessible_and_not_wider_than_the_screen(
    browser: Browser, tmp_path: Path, size: tuple[int, int], dark: bool
) -> None:
    messages: list[str] = []
    with served(make_job_folder(tmp_path / "jobs")) as server, shown(browser, "about:blank", size, dark=dark) as page:
        page.on("console", lambda message: messages.append(message.text))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        for path in (
            "",
            "jobs/killed.yaml",
            "jobs/ended.yaml/datasets/1",
            "jobs/killed.yaml/runs",
            "jobs/killed.yaml/runs/1",
        ):
            page.goto(f"{server.url}{path}")
            assert violations(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path
        assert "The driver of this run is dead" in page.inner_text("#head")
        page.goto(server.url)
        rows = page.locator("tbody tr").all_inner_texts()
        assert len(rows) == 6
        assert "UNREADABLE" in rows[0]
        last = page.locator("tbody tr td.long").first.bounding_box()
        assert last is not None
        assert last["x"] + last["width"] <= size[0], "errors are visible without scrolling sideways"
    assert messages == []


def test_page_of_a_live_run_is_updated_until_paused(browser: Browser, tmp_path: Path) -> None:
    """The test writes the store's records as the run would."""
    folder = tmp_path / "job"
    job_file = make_reported_job(folder, ended=False)
    store = Job.from_file(job_file).open_store(create=False)
    lock = JobLock(store.fs, store.roots.store, samples.RUN_ID, 30, SystemClock())
    with lock, served(job_file) as server, shown(browser, "about:blank") as page:
        page.clock.install()
        page.goto(f"{server.url}jobs/job.yaml/runs/{EPOCH}")
        assert "RUNNING" in page.inner_text("h1")
        assert "The run has no end record" in page.inner_text("#failures-part")
        assert violations(page) == []
        page.focus("#filter-name")
        page.keyboard.type("shop-2")
        page.click("#pause")
        assert page.get_attribute("#pause", "aria-pressed") == "true"
        (folder / "other").mkdir()
        ended = Job.from_file(make_reported_job(folder / "other")).open_store(create=False)
        record = read_record(ended.fs, ended.roots.store, EPOCH)
        assert record is not None
        put_record(store, record)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(20_000)
        assert "RUNNING" in page.inner_text("h1")
        assert asked == [], "it is paused"
        page.click("#pause")
        page.clock.run_for(6_000)
        page.wait_for_selector("h1 .status.failed")
        assert page.inner_text("#update-status") == "The run has ended."
        assert all("shop-2" in name for name in rows_of(page, 0)), "typed text stays"
        assert "row_count" in page.inner_text("#quality-part")


@contextlib.contextmanager
def served(path: Path) -> Iterator[UiServer]:
    with UiServer(ServedJobs(path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


JOB = """\
job: held
source: {{type: python, class: "tests.integration.parts.held_source:HeldSource", options: {{release: "{release}"}}}}
paths: {{store: store, staging: staging, output: output}}
spark: {{master: "local[2,4]"}}
"""


def command(job_file: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "distcommit", *words[0].split(), str(job_file), *words[1:], "--json"],
        capture_output=True,
        text=True,
        cwd=PACKAGE_ROOT,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    progress = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(progress, dict)
    return progress


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_run_is_shown_live_killed_and_after_the_next_run(tmp_path: Path) -> None:
    """One of a hundred datasets is held, and the run is killed once the others are published."""
    release, job_file = tmp_path / "release", tmp_path / "job.yaml"
    job_file.write_text(JOB.format(release=release))
    job, deadline_s = Job.from_file(job_file), time.monotonic() + 120
    with RunProcess(["run", str(job_file), "--json"], tmp_path / "out", tmp_path / "err") as run:
        published: set[str] = set()
        while len(published) < 99 and time.monotonic() < deadline_s and not run.has_ended:
            if (tmp_path / "store" / "store.json").exists():
                published = {row.dataset for row in job.status().datasets if row.done_epoch}
            run.wait(0.2)
        assert len(published) == 99, (tmp_path / "err").read_text()[-3000:]
        epoch = job.runs().runs[0].epoch
        with UiServer(ServedJobs(job_file)) as server:
            live = server.page_at(f"/jobs/job.yaml/runs/{epoch}").text
        assert "RUNNING" in live, live.partition("<main")[2][:1000]
        assert 'data-every-s="5"' in live
        assert "<dt>Read so far</dt>" in live
        run.kill()
    killed = tmp_path / "killed.html"
    assert command(job_file, "report", "-o", str(killed))["status"] == "FAILED"
    text = killed.read_text(encoding="utf-8")
    assert "The driver of this run is dead" in text
    assert text.count('<th scope="row"><bdi>dataset-') >= 99
    release.touch()
    assert command(job_file, "run")["succeeded"]
    page = tmp_path / "report.html"
    reported = command(job_file, "report", "-o", str(page))
    assert (reported["status"], reported["datasets"], reported["epoch"] > epoch) == ("COMMITTED", 1, True)
    text = page.read_text(encoding="utf-8")
    assert f"<bdi>{HELD}</bdi>" in text
    assert text.count('<path class="commit" d="M') >= 1, "when it was committed"
    assert os.stat(page).st_size < 200_000
    rows = ds.dataset(tmp_path / "output", format="parquet", exclude_invalid_files=False)
    files = [file for file in rows.files if HELD in file]
    offsets = Counter(ds.dataset(files, format="parquet").to_table(columns=["offset"]).column("offset").to_pylist())
    assert offsets == Counter(range(100)), "each held record once"
    assert rows.count_rows() == 99 + 100
