"""Commands that look at how a job stands, and change nothing. They import no more than that takes: someone waits."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from distcommit.app.inspection.datasets import Query, SortBy, Status
from distcommit.app.inspection.runs import RunStatus, chosen
from distcommit.app.inspection.status import listed
from distcommit.cli.options import AsJson, JobFile, Overrides, Verbose, Watch, ended_with, looked_at
from distcommit.cli.views.datasets_view import datasets_view, steps_view
from distcommit.cli.views.pieces import LISTED
from distcommit.cli.views.runs_view import run_kept_view, runs_view
from distcommit.cli.views.status_view import status_view


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
    with looked_at(job, overrides, as_json, verbose) as (terminal, configured):
        look = partial(configured.status, idle=show_all or as_json)
        for result in terminal.watched(look, every_s=watch):
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
    with looked_at(job, overrides, as_json, verbose) as (terminal, configured):
        query = Query(tuple(status or ()), match, sort, limit, last_run)
        for result in terminal.watched(partial(configured.datasets, query, lag=lag), every_s=watch):
            terminal.show(result, datasets_view)


def steps(
    job: JobFile,
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="Only this one's.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Of so many datasets; 0: all.")] = 20,
    watch: Watch = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show what is sealed and not closed, with the state of each step: DONE, PENDING, or LOST and why. Reads only."""
    with looked_at(job, overrides, as_json, verbose) as (terminal, configured):
        for result in terminal.watched(partial(configured.steps, dataset, most=limit), every_s=watch):
            terminal.show(result, steps_view)


def runs(
    job: JobFile,
    epoch: Annotated[
        int | None, typer.Argument(metavar="EPOCH", help="All that is kept of this run.", show_default=False)
    ] = None,
    status: Annotated[list[RunStatus] | None, typer.Option("--status", help="Only these. Can be given again.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0: all that are kept.")] = 20,
    watch: Watch = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show which runs there were, and how each ended; or what became of each dataset in one. Reads only."""
    with looked_at(job, overrides, as_json, verbose) as (terminal, configured):
        if epoch is None:
            for result in terminal.watched(configured.runs, every_s=watch):
                terminal.show(chosen(result, tuple(status or ()), limit), runs_view)
        else:
            terminal.show(configured.kept_run(epoch), run_kept_view)
