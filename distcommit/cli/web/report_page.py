"""The pages of a run and of all runs: HTML that needs nothing else, whatever a dataset's name or a message has in it.

Every text goes through Jinja's escaping, and what would control a terminal or turn the direction of text stands there
as its escape. The pages' own style and script are named by their digests in a content security policy that allows
nothing else, so that a text that got past the escaping would still run nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from distcommit.app.inspection.run_report import RunReport
from distcommit.app.inspection.runs import RunsResult
from distcommit.cli.views.run_lines import clock_time
from distcommit.core.errors import printable, shortened_cause

_PAGES = Path(__file__).parent / "pages"
_WIDE = 1000
"""Units that a timeline is wide."""
_SHORT = 200
EVERY_S = 5
"""How often a page that is served asks what is new."""


def report_page(report: RunReport, *, served: bool = False) -> str:
    """The page of a run.

    Args:
        report: the run.
        served: whether it comes from a server, which is asked again while the run lives.
    """
    lives = report.run.status in ("RUNNING", "PENDING")
    return _rendered("report.html", served=served, every_s=EVERY_S if served and lives else 0, report=report)


def runs_page(result: RunsResult) -> str:
    """The page of all runs that are kept, as it is served."""
    return _rendered("runs.html", served=True, every_s=EVERY_S, result=result)


def message_page(title: str, message: str) -> str:
    """A page that says why there is no other one, as it is served."""
    return _rendered("message.html", served=True, every_s=0, title=title, message=message)


def policy(*, served: bool) -> str:
    """The content security policy of the pages. Those that are served may ask their server again, and be shown in no
    other page."""
    style, script = (f"'sha256-{_digest(_asset(name))}'" for name in ("page.css", "page.js"))
    parts = [
        "default-src 'none'",
        f"style-src {style}",
        f"script-src {script}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*parts, *(["connect-src 'self'", "frame-ancestors 'none'"] if served else [])])


def _rendered(name: str, *, served: bool, every_s: int, **values: Any) -> str:
    # what a page says of itself can't name who may show it: only a server's header can
    of_page = policy(served=served).removesuffix("; frame-ancestors 'none'")
    return _environment().get_template(name).render(policy=of_page, served=served, every_s=every_s, **values)


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
        "bar_of": bar_width,
        "path": spans_path,
        "ticks": ticks,
    }
    return environment


def _shown(value: Any) -> Any:
    """What stands in the page for a value, before it is escaped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _asset(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def seconds(ms: float | None) -> str:
    """Milliseconds as seconds; nothing of None."""
    return "" if ms is None else f"{ms / 1000:,.2f}"


def moment(at_ms: int) -> str:
    """A time in UTC, in the form that `<time>` wants; nothing of one that there is not."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if at_ms else ""
    except (ValueError, OverflowError, OSError):
        return clock_time(at_ms)


def _short(text: str) -> str:
    return shortened_cause(text, _SHORT)


def _pretty(tree: Any) -> Markup:
    """A tree as text, in lines."""
    return escape(printable(json.dumps(tree, ensure_ascii=False, indent=2), lines=True))


def bar_width(value: float, most: float) -> str:
    """How much of a hundred a bar takes; one of anything can be seen."""
    return f"{max(0.5, min(100.0, 100 * value / most)):.1f}" if value > 0 and most > 0 else "0"


def spans_path(spans: Iterable[tuple[int, int]], began_ms: int, ended_ms: int, top: int, height: int) -> str:
    """An SVG path of a box for each span, on a line from `began_ms` to `ended_ms`. Spans without a visible gap are one
    box, so that a path has so many at most, however many spans there are."""
    scale = _WIDE / max(1, ended_ms - began_ms)
    boxes: list[tuple[int, int]] = []
    for began, ended in sorted(spans):
        left = max(0, min(_WIDE - 1, int((began - began_ms) * scale)))
        right = max(left + 1, min(_WIDE, round((ended - began_ms) * scale)))
        if boxes and left <= boxes[-1][1]:
            boxes[-1] = boxes[-1][0], max(right, boxes[-1][1])
        else:
            boxes.append((left, right))
    return "".join(f"M{left} {top}h{right - left}v{height}h-{right - left}z" for left, right in boxes)


def ticks(began_ms: int, ended_ms: int) -> list[str]:
    """Five times along a line, in seconds from its beginning."""
    whole_s = (ended_ms - began_ms) / 1000
    digits = 0 if whole_s >= 60 else 1 if whole_s >= 4 else 2
    return [f"{whole_s * part / 4:,.{digits}f} s" for part in range(5)]
