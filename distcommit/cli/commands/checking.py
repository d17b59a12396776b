"""Commands that hold what is stored or published against what it should be, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.job import Job
from distcommit.cli.options import AsJson, FromFile, FromGroup, JobFile, Overrides, Verbose, ended_with, opened
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.audit_view import audit_view
from distcommit.cli.views.result_views import compare_view, log_view
from distcommit.cli.views.verify_view import verify_view
from distcommit.core.errors import ConfigurationError


def log(
    job: JobFile,
    bucket: Annotated[
        int | None, typer.Option(help="A bucket's log; without it the job log.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="URN", help="What concerns a dataset in its bucket's log.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show a commit log: each record, who wrote it, and why it does not count, if so. Reads only.

    Exit code 5 if a segment can't be read.
    """
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.log(bucket=bucket, dataset=dataset)
        terminal.show(result, log_view)
    ended_with(5 if any(line.unreadable for line in result.lines) else 0)


def verify_store(job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Hold the store against its own rules: each log, and what runs say of themselves. Reads only; exit code 5 if
    anything is wrong."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.verify_store()
        terminal.show(result, verify_view)
    ended_with(0 if result.is_well else 5)


def audit(
    job: JobFile,
    deep: Annotated[bool, typer.Option("--deep", help="Read every record, not only the files' metadata.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Check that every offset below the watermarks is published exactly once (with commit.delivery: at_least_once, at
    least once). Reads only; not beside a live run."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.audit(deep=deep)
        terminal.show(result, audit_view)
    ended_with(0 if result.passed else 6)


def compare(
    job: JobFile,
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER.yaml", help="Another job's file.", show_default=False)
    ] = None,
    file: FromFile = None,
    group: FromGroup = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare with what another job has published, or with where another system stands. Reads only."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        if [other, file, group].count(None) != 2:
            raise ConfigurationError("compare with one thing", expected="OTHER.yaml, --from or --kafka-group")
        result = Job.from_file(job, overrides or ()).compare(other or file, group=group)
        terminal.show(result, compare_view)
    ended_with(0 if result.same else 6)
