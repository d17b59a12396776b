"""Commands that look at what is stored, and change nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.job import Job
from distcommit.app.looking.datasets import Query, SortBy, Status
from distcommit.app.looking.runs import RunStatus, chosen
from distcommit.app.looking.status import listed
from distcommit.cli.audit_view import audit_view
from distcommit.cli.datasets_view import datasets_view, steps_view
from distcommit.cli.options import AsJson, FromFile, FromGroup, JobFile, Overrides, Verbose, Watch, ended_with, opened
from distcommit.cli.output import compare_view, log_view, status_view
from distcommit.cli.runs_view import run_kept_view, runs_view
from distcommit.cli.terminal import Terminal
from distcommit.cli.verify_view import verify_view
from distcommit.cli.views import LISTED
from distcommit.model.errors import ConfigurationError


def status(
    job: JobFile,
    show_all: Annotated[bool, typer.Option("--all", help="List idle datasets too.")] = False,
    watch: Watch = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show how the job stands, and what is wrong, with the commands that resolve it. Reads only, also beside a live
    run; exit code 5 if a log can't be read."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        for result in terminal.watched(configured.status, every_s=watch):
            terminal.show(result if as_json else listed(result, show_all=show_all, most=LISTED), status_view)
    ended_with(5 if result.unreadable else 0)


def datasets(
    job: JobFile,
    status: Annotated[list[Status] | None, typer.Option("--status", help="Only these. Can be given again.")] = None,
    match: Annotated[str, typer.Option(metavar="PATTERN", help="Only names like this: 'orders-*'.")] = "*",
    sort: Annotated[SortBy, typer.Option(help="By name, or by what is worst, or most, first.")] = SortBy.NAME,
    limit: Annotated[int, typer.Option(min=0, help="So many; 0: all.")] = 50,
    lag: Annotated[bool, typer.Option("--lag", help="Ask the source how far each is behind.")] = False,
    last_run: Annotated[bool, typer.Option("--last-run", help="What the newest run has read of each.")] = False,
    watch: Watch = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List datasets: where each stands, what was committed last, how far it is behind. Reads only."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        query = Query(tuple(status or ()), match, sort, limit, last_run)
        for result in terminal.watched(partial(configured.datasets, query, lag=lag), every_s=watch):
            terminal.show(result, datasets_view)


def steps(
    job: JobFile,
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Only this one's.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Of so many datasets; 0: all.")] = 20,
    watch: Watch = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show what is sealed and not closed, with the state of each step: DONE, PENDING, or LOST and why. Reads only."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        for result in terminal.watched(partial(configured.steps, dataset, most=limit), every_s=watch):
            terminal.show(result, steps_view)


def runs(
    job: JobFile,
    epoch: Annotated[
        int | None, typer.Argument(metavar="[EPOCH]", help="All that is kept of this run.", show_default=False)
    ] = None,
    status: Annotated[list[RunStatus] | None, typer.Option("--status", help="Only these. Can be given again.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0: all that are kept.")] = 20,
    watch: Watch = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show which runs there were, and how each ended; or what became of each dataset in one. Reads only."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        if epoch is None:
            for result in terminal.watched(configured.runs, every_s=watch):
                terminal.show(chosen(result, tuple(status or ()), limit), runs_view)
        else:
            terminal.show(configured.kept_run(epoch), run_kept_view)


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
        Path | None, typer.Argument(metavar="[OTHER.yaml]", help="Another job's file.", show_default=False)
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
