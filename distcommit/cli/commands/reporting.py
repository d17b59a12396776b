"""Commands that make pages of what is kept of runs, and change nothing in the store."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from distcommit.app.inspection.run_report import RunReport
from distcommit.app.inspection.runs import RunStatus
from distcommit.cli.options import AsJson, JobFile, Overrides, Verbose, opened
from distcommit.core.errors import storage_error


class ReportResult(msgspec.Struct, frozen=True):
    """The page of a run, and how large it is. `datasets`: that it lists; `left_out`: that it counts."""

    report: str
    epoch: int
    status: RunStatus
    datasets: int
    left_out: int
    size_bytes: int


class UiResult(msgspec.Struct, frozen=True):
    """Where the pages are served."""

    url: str


def report(
    job: JobFile,
    epoch: Annotated[
        int | None, typer.Argument(metavar="EPOCH", help="The run; without it the newest.", show_default=False)
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page; one that is there is replaced.")
    ] = Path("report.html"),
    lag: Annotated[bool, typer.Option("--lag", help="Ask the source how far each dataset is behind now.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make one page of a run, which needs nothing else: its tasks in time, what was slow, what failed, each dataset.
    Reads only, also beside a live run."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        from distcommit.cli.web.report_page import report_page  # noqa: PLC0415 - other commands need no templates

        found = configured.report(epoch, lag=lag)
        data = report_page(found).encode()
        _write(output, data)
        terminal.show(_result(found, output, len(data)), _shown)


def ui(
    job: JobFile,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any that is free.")] = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Serve the pages of all runs on 127.0.0.1, live and read-only, until Ctrl-C."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        from distcommit.cli.web.ui_server import UiServer  # noqa: PLC0415 - other commands need no templates

        configured.runs()  # a job without a store is told here
        with UiServer(configured, port) as server:
            terminal.show(UiResult(server.url), lambda result: f"{result.url} (read-only; Ctrl-C ends it)")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                terminal.narrate("ended")


def _write(output: Path, data: bytes) -> None:
    """Whole, or not at all: a page that is there stays until the new one is."""
    unfinished = output.with_name(f".{output.name}-{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(data)
        os.replace(unfinished, output)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise storage_error(error, "the report can't be written", path=str(output)) from error


def _result(found: RunReport, output: Path, size_bytes: int) -> ReportResult:
    return ReportResult(
        str(output), found.run.epoch, found.run.status, len(found.datasets), found.datasets_left_out, size_bytes
    )


def _shown(result: ReportResult) -> str:
    listed = f"{result.datasets:,} datasets" + (f" of {result.datasets + result.left_out:,}" if result.left_out else "")
    return (
        f"run {result.epoch} is {result.status}: {escape(result.report)}, {listed}, {result.size_bytes / 1e6:,.2f} MB"
    )
