"""Commands that run jobs by their schedules, and that send requests to the service of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from distcommit.app.admin.service_requests import ServiceRequest
from distcommit.app.jobs.job import Job, username
from distcommit.app.serving.service import serve
from distcommit.app.telemetry.service_events import ServiceEvent
from distcommit.cli.command_decorators import as_service, on_job_state
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.serving_view import served_line, service_request_view
from distcommit.core.errors import ConfigurationError, escaped_in_json


@as_service
def serve_jobs(
    terminal: Terminal,
    overrides: Sequence[str],
    jobs: Annotated[Path, typer.Argument(metavar="JOBS/", help="Folder of job files.", show_default=False)],
    at_once: Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="Run at most N jobs at once.")] = 4,
    poll: Annotated[
        float, typer.Option("--poll", min=0.1, metavar="SECONDS", help="Poll the folder and stores this often.")
    ] = 5,
    metrics: Annotated[
        str, typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics; HOST: 127.0.0.1.")
    ] = "",
) -> None:
    """Run the jobs of a folder by their schedules until SIGTERM.

    Jobs with the Spark settings of most jobs share one session. With --json, each event is one line.
    """

    def print_event(event: ServiceEvent) -> None:
        as_json = terminal.as_json
        line = escaped_in_json(msgspec.json.encode(event).decode()) if as_json else served_line(event)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    at = _address(metrics) if metrics else None
    serve(jobs, overrides, print_event, username(), at_once=at_once, poll_s=poll, metrics_at=at)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise ConfigurationError(
            "--metrics must name a port", id="ARGUMENT_INVALID", expected="PORT or HOST:PORT", found=text
        )
    return host.strip("[]") or "127.0.0.1", int(port)


@on_job_state
def pause(terminal: Terminal, job: Job) -> int:
    """Suspend scheduled runs of the job.

    A run in progress continues.
    """
    return _request(terminal, job, ServiceRequest.PAUSE)


@on_job_state
def resume(terminal: Terminal, job: Job) -> int:
    """Resume scheduled runs of a paused job."""
    return _request(terminal, job, ServiceRequest.RESUME)


@on_job_state
def trigger(
    terminal: Terminal,
    job: Job,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait for the run to begin.")] = 0,
) -> int:
    """Start one run of the job by its service now, even if it is paused.

    With --wait, exit code 1 if no service has begun the run in time; a service still begins it later.
    """
    return _request(terminal, job, ServiceRequest.TRIGGER, wait)


def _request(terminal: Terminal, job: Job, wish: ServiceRequest, wait_s: float = 0) -> int:
    if job.config.schedule is None:
        raise ConfigurationError(
            "no service runs this job",
            id="JOB_NOT_SERVED",
            expected="a section schedule in the job file",
            todo="use `distcommit run`",
        )
    result = job.request_service(wish, wait_s=wait_s)
    terminal.show(result, service_request_view)
    return 1 if wait_s and not result.is_started else 0
