"""Commands by which a person decides what becomes of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated

import msgspec
import typer

from distcommit.app.admin.releases import Abandoned
from distcommit.app.job import Job
from distcommit.cli.options import AsJson, JobFile, Overrides, Verbose, ended_with, opened
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.datasets_view import release_plan_view
from distcommit.cli.views.status_view import status_view
from distcommit.core.errors import ConfigurationError
from distcommit.core.watermark import Position
from distcommit.decoding import from_json
from distcommit.stores.operator.operator_actions import Release, Retried


def release(
    job: JobFile,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET HOW",
            show_default=False,
            help="The dataset's URN, as status shows it, and how. retry: the next run replays it again, or"
            " reads it again if it was stopped. accept: it"
            " counts as done as it is, what is not published is lost. abandon: it is undone, and the next run reads its"
            " records again. restart: it is undone, and the next run reads the dataset from its beginning, into the"
            " target that is there then. With --all no dataset, and retry, abandon or restart.",
        ),
    ],
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="retry: every quarantined or stopped dataset. abandon and restart: every one whose reason says so, and"
            " abandon every one of which a sealed file is gone.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do to each.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Release a quarantined dataset, or one that was stopped. What you do is recorded in its log with your name."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    unreadable = False
    with terminal.command():
        ways = tuple(way for way in Release if not everything or way is not Release.ACCEPT)
        expected = [*([] if everything else ["DATASET"]), "|".join(ways)]
        if len(words) != len(expected) or words[-1] not in ways:
            raise ConfigurationError(
                "this is no way to release" + (" all datasets" if everything else " a dataset"),
                expected=" ".join(expected),
                found=" ".join(words),
            )
        configured = Job.from_file(job, overrides or ())
        if dry_run:
            plan = configured.release_plan(Release(words[-1]), None if everything else words[0])
            terminal.show(plan, release_plan_view)
            unreadable = bool(plan.unreadable)
        elif everything:
            released = _release_all(configured, Release(words[0]))
            show_datasets(terminal, configured, released.datasets)
            unreadable = bool(released.unreadable)
        else:
            acts: dict[Release, Callable[[str], None]] = {
                Release.RETRY: configured.retry,
                Release.ACCEPT: configured.accept,
                Release.ABANDON: configured.abandon,
                Release.RESTART: partial(configured.abandon, restart=True),
            }
            acts[Release(words[1])](words[0])
            show_datasets(terminal, configured, words[:1])
    ended_with(5 if unreadable else 0)


def _release_all(configured: Job, how: Release) -> Retried | Abandoned:
    if how is Release.RETRY:
        return configured.retry_all()
    return configured.abandon_all(restart=how is Release.RESTART)


def quarantine(
    job: JobFile,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's URN, as status shows it.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Let no run go on with a pending dataset until you release it: if what it needs is gone for good."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        configured.quarantine(dataset)
        show_datasets(terminal, configured, [dataset])


def set_watermark(
    job: JobFile,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's URN, as status shows it.")],
    positions: Annotated[
        str,
        typer.Argument(metavar="POSITIONS", help="The next position to read, by partition: '{\"0\": 1200}'; or null."),
    ],
    new: Annotated[
        bool, typer.Option("--new", help="The dataset is one that no run has read yet: it begins at these positions.")
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Set an idle dataset's watermark. Back publishes records again, forward skips them; null forgets it."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        try:
            wanted = from_json(positions, dict[str, Position] | None)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                "these are not positions by partition",
                expected='JSON such as {"0": 1200}',
                found=f"{positions}: {error}",
            ) from error
        configured = Job.from_file(job, overrides or ())
        configured.set_watermark(dataset, wanted, new=new)
        show_datasets(terminal, configured, [dataset])


def show_datasets(terminal: Terminal, job: Job, urns: Collection[str]) -> None:
    """How these datasets stand after what was done."""
    found = job.status()
    result = msgspec.structs.replace(found, datasets=[row for row in found.datasets if row.dataset in set(urns)])
    terminal.show(result, status_view)
