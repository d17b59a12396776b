"""Operator actions on datasets: release, quarantine and set the watermark."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated

import msgspec
import typer

from distcommit.app.admin.abandon_datasets import Abandoned
from distcommit.app.jobs.job import Job
from distcommit.cli.command_decorators import Dataset, on_job
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.runs.dry_run_views import release_plan_view
from distcommit.cli.views.status_view import status_view
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Position
from distcommit.stores.operator.operator_actions import Release, RetryResult

_HOW = """\
Dataset URN (none with --all), and one of:

\b
retry    replay the commit again, or read a stopped dataset again
accept   close it as it is; what is not published is lost
abandon  undo it; the next run reads its records again
restart  undo it; the next run reads from the beginning, into the
         target that exists then"""


@on_job
def release(
    terminal: Terminal,
    job: Job,
    words: Annotated[list[str], typer.Argument(metavar="DATASET HOW", show_default=False, help=_HOW)],
    everything: Annotated[
        bool,
        typer.Option("--all", help="Release every dataset that HOW applies to."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
) -> int:
    """Release a quarantined or stopped dataset.

    The action is recorded in the log of the dataset, with your name.
    """
    action = _release_of(words, everything)
    if dry_run:
        plan = job.release_plan(action, None if everything else words[0])
        terminal.show(plan, release_plan_view)
        return 5 if plan.unreadable else 0
    if everything:
        released = _release_all(job, action)
        show_datasets(terminal, job, released.datasets)
        return 5 if released.unreadable else 0
    acts: dict[Release, Callable[[str], None]] = {
        Release.RETRY: job.retry,
        Release.ACCEPT: job.accept,
        Release.ABANDON: job.abandon,
        Release.RESTART: partial(job.abandon, restart=True),
    }
    acts[action](words[0])
    show_datasets(terminal, job, words[:1])
    return 0


def _release_of(words: list[str], everything: bool) -> Release:
    ways = tuple(way for way in Release if not everything or way is not Release.ACCEPT)
    expected = [*([] if everything else ["DATASET"]), "|".join(ways)]
    if len(words) != len(expected) or words[-1] not in ways:
        raise ConfigurationError(
            "the arguments of release are wrong" + (" with --all" if everything else ""),
            id="ARGUMENT_INVALID",
            expected=" ".join(expected),
            found=" ".join(words),
        )
    return Release(words[-1])


def _release_all(job: Job, how: Release) -> RetryResult | Abandoned:
    return job.retry_all() if how is Release.RETRY else job.abandon_all(restart=how is Release.RESTART)


@on_job
def quarantine(terminal: Terminal, job: Job, dataset: Dataset) -> None:
    """Quarantine a pending dataset until it is released.

    Runs skip the dataset. Use it if files that the commit needs are lost for good.
    """
    job.quarantine(dataset)
    show_datasets(terminal, job, [dataset])


@on_job
def set_watermark(
    terminal: Terminal,
    job: Job,
    dataset: Dataset,
    positions: Annotated[
        str,
        typer.Argument(metavar="POSITIONS", help="Next position by partition, as JSON: '{\"0\": 1200}'; or null."),
    ],
    new: Annotated[
        bool, typer.Option("--new", help="Set the first positions of a dataset that no run has read.")
    ] = False,
) -> None:
    """Set the watermark of an idle dataset.

    A lower position publishes records again; a higher one skips records; null forgets the watermark.
    """
    try:
        requested = from_json(positions, dict[str, Position] | None)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            "POSITIONS must be a JSON object of positions by partition, or null",
            id="POSITIONS_INVALID",
            expected='JSON such as {"0": 1200}',
            found=f"{positions}: {error}",
            todo="repeat the command with such JSON, in single quotes for the shell",
        ) from error
    job.set_watermark(dataset, requested, new=new)
    show_datasets(terminal, job, [dataset])


def show_datasets(terminal: Terminal, job: Job, urns: Collection[str]) -> None:
    """Show the status of the given datasets only."""
    status = job.status()
    result = msgspec.structs.replace(status, datasets=[row for row in status.datasets if row.dataset in set(urns)])
    terminal.show(result, status_view)
