"""Debian's headless Chromium, and axe, which finds accessibility violations."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.servers.process import ServerUnavailableError

PHONE, DESKTOP = (390, 844), (1280, 900)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Yield a browser.

    Raises:
        ServerUnavailableError: if it is not installed.
    """
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise ServerUnavailableError("no chromium is on PATH (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def shown(browser: Browser, url: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> Iterator[Page]:
    """Yield a page as a device of that size shows it."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        is_mobile=size == PHONE,
        has_touch=size == PHONE,
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(url)
        yield page
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """Return axe's violations on a page: rule and place."""
    problems = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html'][:200]}: {node['failureSummary']}" for item in problems for node in item["nodes"]
    ]
