"""Commands that show the state of a job, its datasets and runs, and change nothing.

Users wait for them, so this module imports nothing that runs jobs.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer
from rich.console import RenderableType

from distcommit.app.inspection.dataset_list import Query, SortBy, Status
from distcommit.app.inspection.job_status import listed
from distcommit.app.inspection.recorded_run_settings import read_run_settings
from distcommit.app.inspection.recorded_runs import RunStatus, filter_runs
from distcommit.app.inspection.rejected_records import newest_rejected
from distcommit.app.inspection.work_unit_rows import read_work_units
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.cli.command_decorators import Watch, on_stored_job
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.datasets_view import datasets_view, steps_view
from distcommit.cli.views.runs.recorded_runs_view import (
    recorded_run_view,
    run_settings_view,
    runs_view,
    work_units_view,
)
from distcommit.cli.views.runs.run_view_components import rejected_view
from distcommit.cli.views.status_view import status_view
from distcommit.cli.views.view_components import LISTED, page
from distcommit.core.errors import ConfigurationError
from distcommit.engine.system_clock import SystemClock


def _one_of(does: str, words: type[StrEnum]) -> str:
    return f"{does} by {', '.join(words)}."


@on_stored_job
def status(
    terminal: Terminal,
    job: StoredJob,
    show_all: Annotated[bool, typer.Option("--all", help="List idle datasets too.")] = False,
    watch: Watch = 0,
) -> int:
    """Show datasets, the last run, and problems with their remedies.

    Reads only; safe beside a live run. Exit code 5 if a log is unreadable.
    """
    look = partial(job.status, idle=show_all or terminal.as_json)
    for result in terminal.watched(look, every_s=watch):
        shown = result if terminal.as_json else listed(result, show_all=show_all, most=LISTED)
        terminal.show(shown, lambda shown: page(status_view(shown), _rejected(job)))
    return 5 if result.unreadable else 0


@on_stored_job
def datasets(
    terminal: Terminal,
    job: StoredJob,
    status: Annotated[
        list[Status] | None, typer.Option("--status", metavar="STATUS", help=_one_of("Filter", Status))
    ] = None,
    match: Annotated[str, typer.Option(metavar="PATTERN", help="Filter by name, such as 'orders-*'.")] = "*",
    sort: Annotated[SortBy, typer.Option(metavar="KEY", help=_one_of("Sort", SortBy))] = SortBy.NAME,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="List N datasets; 0 lists all.")] = 50,
    lag: Annotated[bool, typer.Option("--lag", help="Ask the source how far each dataset is behind.")] = False,
    last_run: Annotated[bool, typer.Option("--last-run", help="Show what the newest run read of each.")] = False,
    watch: Watch = 0,
) -> None:
    """List datasets with status, watermark, last commit and lag.

    Reads only; safe beside a live run.
    """
    query = Query(tuple(status or ()), match, sort, limit, last_run or sort is SortBy.REJECTED)
    for result in terminal.watched(partial(job.datasets, query, lag=lag), every_s=watch):
        terminal.show(result, lambda shown: page(datasets_view(shown), _rejected(job)))


def _rejected(job: StoredJob) -> RenderableType | None:
    rejected = newest_rejected(job.open_store(create=False), SystemClock())
    return rejected_view(rejected, f"{job.command('dataset reprocess')} --all") if rejected is not None else None


@on_stored_job
def steps(
    terminal: Terminal,
    job: StoredJob,
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="Dataset URN; default: all datasets.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Show N datasets; 0 shows all.")] = 20,
    watch: Watch = 0,
) -> None:
    """Show unfinished commits, with the state of each commit step.

    A step is DONE, PENDING, or LOST with the reason. Reads only; safe beside a live run.
    """
    for result in terminal.watched(partial(job.steps, dataset, most=limit), every_s=watch):
        terminal.show(result, steps_view)


@on_stored_job
def runs(
    terminal: Terminal,
    job: StoredJob,
    epoch: Annotated[
        int | None,
        typer.Argument(metavar="EPOCH", help="Show one run, with the outcome of each dataset.", show_default=False),
    ] = None,
    status: Annotated[
        list[RunStatus] | None, typer.Option("--status", metavar="STATUS", help=_one_of("Filter", RunStatus))
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="List the N newest runs; 0 lists all.")] = 20,
    settings: Annotated[bool, typer.Option("--settings", help="Show the settings of run EPOCH.")] = False,
    compare: Annotated[
        int, typer.Option(min=0, metavar="OTHER", help="Show the settings that differ from run OTHER.")
    ] = 0,
    work_units: Annotated[bool, typer.Option("--work-units", help="List the work units of run EPOCH.")] = False,
    watch: Watch = 0,
) -> None:
    """List runs and how they ended, or show one run or its settings.

    Epochs have gaps (2, 5, 8), because each run takes several numbers of its log. Reads only; safe beside a live run.
    """
    if epoch is None and (settings or compare or work_units):
        raise ConfigurationError(
            "--settings, --compare and --work-units need the epoch of a run",
            id="ARGUMENT_INVALID",
            expected="runs JOB.yaml EPOCH --settings",
            found="no EPOCH",
        )
    if epoch is not None and work_units:
        look = partial(read_work_units, job.open_store(create=False), epoch, SystemClock())
        for listed_units in terminal.watched(look, every_s=watch):
            terminal.show(listed_units, work_units_view)
    elif epoch is not None and (settings or compare):
        shown = read_run_settings(job.open_store(create=False), epoch, SystemClock(), compared_epoch=compare)
        terminal.show(shown, run_settings_view)
    elif epoch is None:
        for result in terminal.watched(job.runs, every_s=watch):
            terminal.show(filter_runs(result, tuple(status or ()), limit), runs_view)
    else:
        terminal.show(job.recorded_run(epoch), recorded_run_view)
