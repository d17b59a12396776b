"""Events of a service, and requests to it, as lines."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape

from distcommit.app.admin.service_requests import ServiceRequest, ServiceRequestResult
from distcommit.app.telemetry.service_events import ServiceEvent
from distcommit.cli.views.runs.run_view_components import clock_time
from distcommit.cli.views.view_components import bad_verdict, fact_table, good_verdict, page
from distcommit.core.errors import printable


def served_line(event: ServiceEvent) -> str:
    """Return an event of a service as one line."""
    about = f"{event.job}: " if event.job else ""
    epoch = f" epoch {event.epoch}" if event.epoch else ""
    text = " ".join(event.text.split())
    return printable(f"{clock_time(event.at_ms)}  {about}{event.event}{epoch}{f': {text}' if text else ''}")


def service_request_view(result: ServiceRequestResult) -> RenderableType:
    """Show the outcome of a request to the service."""
    match result.request:
        case ServiceRequest.PAUSE:
            text = f"by {escape(result.paused_by)}; no scheduled run begins until `distcommit schedule resume`"
            verdict = good_verdict("paused already" if result.was_in_effect else "paused", text)
        case ServiceRequest.RESUME:
            verdict = good_verdict("not paused" if result.was_in_effect else "resumed", "scheduled runs begin as usual")
        case ServiceRequest.TRIGGER if result.is_started:
            verdict = good_verdict("begun", "`distcommit runs` shows the run")
        case _:
            verdict = bad_verdict("requested", "no service has begun the run yet")
    return page(verdict, fact_table({"job": escape(result.job)}))
