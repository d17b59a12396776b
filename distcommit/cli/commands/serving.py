"""Commands that serve jobs by their schedules, and those that ask something of whoever serves one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from distcommit.app.admin.ask_service import Wish
from distcommit.app.job import Job, who_am_i
from distcommit.app.serving.serve import serve
from distcommit.app.telemetry.served import Served
from distcommit.cli.options import AsJson, JobFile, Overrides, Verbose, ended_with, opened
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.serving_view import asked_view, served_line
from distcommit.core.errors import ConfigurationError, escaped_in_json


def serve_jobs(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS/", help="The folder of job files.", show_default=False)],
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="How many runs at one time at most.")] = 4,
    look: Annotated[
        float, typer.Option("--look", min=0.1, metavar="SECONDS", help="How often to look at folder and stores.")
    ] = 5,
    metrics: Annotated[
        str, typer.Option("--metrics", metavar="[HOST:]PORT", help="Let Prometheus scrape here; HOST: 127.0.0.1.")
    ] = "",
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run the jobs of a folder by their schedules, in one Spark session, until SIGTERM or Ctrl-C. With --json one
    JSON document a line for each thing that happens."""
    terminal = Terminal(as_json=as_json, verbose=verbose)

    def told(event: Served) -> None:
        line = escaped_in_json(msgspec.json.encode(event).decode()) if as_json else served_line(event)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with terminal.command(lasts=True):
        at = _address(metrics) if metrics else None
        serve(jobs, overrides or (), told, who_am_i(), at_once=at_once, look_s=look, metrics_at=at)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise ConfigurationError("no port to serve metrics at", expected="PORT or HOST:PORT", found=text)
    return host.strip("[]") or "127.0.0.1", int(port)


def pause(job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Let no service run the job by its schedule, until it is resumed. A run that is under way goes on."""
    _ask(Wish.PAUSE, job, overrides, as_json, verbose)


def resume(job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Let services run a paused job by its schedule again."""
    _ask(Wish.RESUME, job, overrides, as_json, verbose)


def trigger(
    job: JobFile,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the run to begin.")] = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Have the service run the job once, whatever its schedule says, also if it is paused. With --wait exit code 1 if
    no service has begun it in time; one that looks later still does."""
    _ask(Wish.TRIGGER, job, overrides, as_json, verbose, wait)


def _ask(wish: Wish, job: Path, overrides: list[str] | None, as_json: bool, verbose: bool, wait_s: float = 0) -> None:
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = _require_scheduled(configured).ask_service(wish, wait_s=wait_s)
        terminal.show(result, asked_view)
    ended_with(1 if wait_s and not result.taken else 0)


def _require_scheduled(job: Job) -> Job:
    if job.config.schedule is None:
        raise ConfigurationError(
            "no service runs this job", expected="a section schedule in the job file", todo="use `distcommit run`"
        )
    return job
