"""Commands that render jobs and runs as HTML pages, and change nothing in the store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from distcommit.app.inspection.recorded_runs import RunStatus
from distcommit.app.inspection.report_data.run_report import RunReport
from distcommit.app.jobs.job import Job
from distcommit.cli.command_decorators import as_service, on_job_state
from distcommit.cli.terminal import Terminal
from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.counts import count_of


class ReportResult(msgspec.Struct, frozen=True):
    """A written report.

    Attributes:
        report: path of the HTML page.
        epoch: epoch of the run.
        status: status of the run.
        datasets: number of datasets that the page lists.
        datasets_omitted: number of datasets that the page only counts.
        size_bytes: size of the page.
    """

    report: str
    epoch: int
    status: RunStatus
    datasets: int
    datasets_omitted: int
    size_bytes: int


class UiResult(msgspec.Struct, frozen=True):
    """The result of `distcommit ui`.

    Attributes:
        url: URL at which the pages are served.
    """

    url: str


@on_job_state
def report(
    terminal: Terminal,
    job: Job,
    epoch: Annotated[
        int | None, typer.Argument(metavar="EPOCH", help="Epoch of the run; default: the newest.", show_default=False)
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File of the page; it is replaced.")
    ] = Path("report.html"),
    lag: Annotated[bool, typer.Option("--lag", help="Ask the source how far each dataset is behind.")] = False,
) -> None:
    """Write the report of a run: one HTML page without external files.

    It shows tasks on a time line, slow and failed parts, and each dataset. Reads only; safe beside a live run.
    """
    from distcommit.cli.web.html_pages import report_page  # noqa: PLC0415 - other commands need no templates

    if output.is_dir() or not output.parent.is_dir():
        raise ConfigurationError(
            "--output must name a file in an existing folder", id="ARGUMENT_INVALID", found=str(output)
        )
    run = job.report(epoch, lag=lag)
    data = report_page(run).encode()
    _write(output, data)
    terminal.show(_result(run, output, len(data)), _result_line)


@as_service
def ui(
    terminal: Terminal,
    overrides: Sequence[str],
    jobs: Annotated[
        Path, typer.Argument(metavar="JOB.yaml|JOBS/", help="Job file, or folder of job files.", show_default=False)
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port; 0 picks a free one.")] = 0,
    lag: Annotated[bool, typer.Option("--lag", help="Ask sources how far each dataset is behind.")] = False,
) -> None:
    """Serve pages of jobs and their runs on 127.0.0.1, read-only and live.

    Shows the problems, datasets, lag, rejected records and runs of a job, or of each job of a folder. Ctrl-C ends it.
    """
    from distcommit.cli.web.job_summaries import ServedJobs  # noqa: PLC0415 - other commands need no templates
    from distcommit.cli.web.ui_server import UiServer  # noqa: PLC0415

    served = ServedJobs(jobs, overrides, asks_lag=lag)
    if not served.is_folder:
        served.open(jobs.name).open_store(create=False)  # raises here if the job has no store
    with UiServer(served, port) as server:
        terminal.show(UiResult(server.url), lambda result: f"{result.url} (read-only; Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            terminal.narrate("ended")


def _write(output: Path, data: bytes) -> None:
    """Replace a file atomically."""
    unfinished = output.with_name(f".{output.name}-{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(data)
        os.replace(unfinished, output)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise storage_error(error, "the report can't be written", path=str(output)) from error


def _result(run: RunReport, output: Path, size_bytes: int) -> ReportResult:
    listed, left_out = len(run.datasets), run.datasets_omitted
    return ReportResult(str(output), run.run.epoch, run.run.status, listed, left_out, size_bytes)


def _result_line(result: ReportResult) -> str:
    listed = count_of(result.datasets, "dataset") + (
        f" of {result.datasets + result.datasets_omitted:,}" if result.datasets_omitted else ""
    )
    return (
        f"run {result.epoch} is {result.status}: {escape(result.report)}, {listed}, {result.size_bytes / 1e6:,.2f} MB"
    )
