"""What a service does, and what was asked of it, for people."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape

from distcommit.app.admin.ask_service import AskedResult, Wish
from distcommit.app.telemetry.served import Served
from distcommit.cli.views.pieces import bad_verdict, fact_table, good_verdict, page
from distcommit.cli.views.run_lines import clock_time
from distcommit.core.errors import printable


def served_line(event: Served) -> str:
    """One line for something that a service did or found."""
    about = f"{event.job}: " if event.job else ""
    epoch = f" epoch {event.epoch}" if event.epoch else ""
    text = " ".join(event.text.split())
    return printable(f"{clock_time(event.at_ms)}  {about}{event.what}{epoch}{f': {text}' if text else ''}")


def asked_view(result: AskedResult) -> RenderableType:
    """What came of a wish."""
    match result.wish:
        case Wish.PAUSE:
            text = (
                f"by {escape(result.paused_by)}; no service runs it by its schedule until `distcommit schedule resume`"
            )
            verdict = good_verdict("paused already" if result.was_so else "paused", text)
        case Wish.RESUME:
            verdict = good_verdict("not paused" if result.was_so else "resumed", "services run it by its schedule")
        case Wish.TRIGGER if result.taken:
            verdict = good_verdict("begun", "`distcommit runs` shows the run")
        case _:
            verdict = bad_verdict("asked for", "no service has begun the run yet; the first one that looks does")
    return page(verdict, fact_table({"job": escape(result.job)}))
