"""HTML pages without external files, and the page of a run.

Names and messages are not trusted. Jinja escapes every text; control characters and characters that change the text
direction are shown as escapes. The content security policy allows only the style and the script of the pages, by their
digests, so that an unescaped text could not run as code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from distcommit.app.inspection.job_status import NextRun, status_of
from distcommit.app.inspection.report_data.run_report import RunReport
from distcommit.cli.views.runs.run_view_components import clock_time
from distcommit.core.errors import printable, shortened_cause
from distcommit.core.records.run_counts import RunCounts

_PAGES = Path(__file__).parent / "pages"
_WIDE = 1000
"""Width of a time line, in SVG units."""
_SHORT = 200
EVERY_S = 5
"""Seconds between the updates of a served page."""


NEXT_STEPS = {
    NextRun.REPLAYS: "The next run publishes them.",
    NextRun.DROPS: "The next run drops them and reads their records again, because the run had not decided to publish.",
    NextRun.UNDECIDED: "The next run drops them and reads their records again, unless the run had decided to publish.",
    NextRun.UNKNOWN: "The job log is unreadable, so that it is unknown whether the run had decided to publish them.",
}
"""The effect of the next run on the sealed commits of a killed run, in words."""


def report_page(report: RunReport, *, name: str = "", served: bool = False) -> str:
    """Return the page of a run.

    Args:
        name: name of the job file, for links of a served page.
        served: whether a server serves the page, which then updates itself while the run is alive.
    """
    is_alive = report.run.status in ("RUNNING", "PENDING")
    every_s = EVERY_S if served and is_alive else 0
    return rendered("report.html", served=served, every_s=every_s, report=report, url=job_url(name))


def message_page(title: str, message: str) -> str:
    """Return a page with a message, for the server."""
    return rendered("message.html", served=True, every_s=0, title=title, message=message)


def policy(*, served: bool) -> str:
    """Return the content security policy of a page. A `served` page may fetch from its server, and must not be framed;
    a page in a file may not fetch.
    """
    style, script = (f"'sha256-{_digest(_asset(name))}'" for name in ("page.css", "page.js"))
    parts = [
        "default-src 'none'",
        f"style-src {style}",
        f"script-src {script}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*parts, *(["connect-src 'self'", "frame-ancestors 'none'"] if served else [])])


def job_url(name: str) -> str:
    """Return the path of the page of a job, by the name of its file."""
    return f"/jobs/{quote(os.fsencode(name), safe='')}"


def rendered(template: str, *, served: bool, every_s: int, **values: Any) -> str:
    """Return the page of a template.

    Args:
        served: whether a server sends the page; otherwise a file contains it.
        every_s: seconds between updates of the page; 0 for none.
        values: the template's variables.
    """
    # frame-ancestors is allowed in a header only, not in a page
    of_page = policy(served=served).removesuffix("; frame-ancestors 'none'")
    return _environment().get_template(template).render(policy=of_page, served=served, every_s=every_s, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[[Any], str]] = {
        "count": lambda number: f"{number:,}",
        "count_or_blank": lambda number: f"{number:,}" if number else "",
        "seconds": seconds,
        "seconds_or_blank": lambda ms: seconds(ms) if ms else "",
        "megabytes": lambda size: f"{size / 1e6:,.1f}",
        "megabytes_or_blank": lambda size: f"{size / 1e6:,.1f}" if size else "",
        "moment": moment,
        "clock": clock_time,
        "short": _short,
        "pretty": _pretty,
    }
    environment.filters |= filters
    environment.globals |= {
        "style": Markup(_asset("page.css")),
        "script": Markup(_asset("page.js")),
        "no_counts": RunCounts(),
        "job_url": job_url,
        "status_of": status_of,
        "next_steps": NEXT_STEPS,
        "bar_of": bar_width,
        "path": spans_path,
        "ticks": ticks,
    }
    return environment


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _asset(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def seconds(ms: float | None) -> str:
    """Return milliseconds as text in seconds; "" for None."""
    return "" if ms is None else f"{ms / 1000:,.2f}"


def moment(at_ms: int) -> str:
    """Return a time in UTC as `<time>` requires it; "" for 0."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if at_ms else ""
    except (ValueError, OverflowError, OSError):
        return clock_time(at_ms)


def _short(text: str) -> str:
    return shortened_cause(text, _SHORT)


def _pretty(tree: Any) -> Markup:
    return escape(printable(json.dumps(tree, ensure_ascii=False, indent=2), lines=True))


def bar_width(value: float, most: float) -> str:
    """Return the width of a bar in percent of `most`. A value above 0 stays visible."""
    return f"{max(0.5, min(100.0, 100 * value / most)):.1f}" if value > 0 and most > 0 else "0"


def spans_path(spans: Iterable[tuple[int, int]], began_ms: int, ended_ms: int, top: int, height: int) -> str:
    """Return an SVG path with a box for each span, on a time line from `began_ms` to `ended_ms`. Spans without a
    visible gap share a box, which bounds the length of the path.
    """
    scale = _WIDE / max(1, ended_ms - began_ms)
    boxes: list[tuple[int, int]] = []
    for began, ended in sorted(spans):
        x = max(0, min(_WIDE - 1, int((began - began_ms) * scale)))
        right = max(x + 1, min(_WIDE, round((ended - began_ms) * scale)))
        if boxes and x <= boxes[-1][1]:
            boxes[-1] = boxes[-1][0], max(right, boxes[-1][1])
        else:
            boxes.append((x, right))
    return "".join(f"M{x} {top}h{right - x}v{height}h-{right - x}z" for x, right in boxes)


def ticks(began_ms: int, ended_ms: int) -> list[str]:
    """Return five labels along a time line, in seconds from its beginning."""
    whole_s = (ended_ms - began_ms) / 1000
    digits = 0 if whole_s >= 60 else 1 if whole_s >= 4 else 2
    return [f"{whole_s * part / 4:,.{digits}f} s" for part in range(5)]
