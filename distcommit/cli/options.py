"""What the commands on a job have in common."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distcommit.cli.terminal import Terminal

if TYPE_CHECKING:
    from distcommit.app.job import Job
    from distcommit.app.stored_job import StoredJob

JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Wins over the job file. Can be given again and again."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; all else on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Logs, Spark's own among them, and tracebacks.")]
Watch = Annotated[
    float, typer.Option("--watch", min=0, metavar="SECONDS", help="Show it again each time; Ctrl-C ends it.")
]

FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="A .csv with the columns dataset, partition, next_offset; a .json that Gobblin exported with"
        " `job-state-store --read-job-state --keepConfig`; or another job's .yaml.",
    ),
]
FromGroup = Annotated[
    str | None, typer.Option("--kafka-group", metavar="NAME", help="A consumer group's committed offsets.")
]


@contextlib.contextmanager
def opened(job: Path, overrides: list[str] | None, as_json: bool, verbose: bool) -> Iterator[tuple[Terminal, Job]]:
    """One command on the job of a file."""
    from distcommit.app.job import Job  # noqa: PLC0415 - what only looks needs none of what runs

    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield terminal, Job.from_file(job, overrides or ())


@contextlib.contextmanager
def looked_at(
    job: Path, overrides: list[str] | None, as_json: bool, verbose: bool
) -> Iterator[tuple[Terminal, StoredJob]]:
    """One command that looks at what is stored of the job of a file. Hardly anything that it makes is in circles, and
    most is shown: to look for garbage among it as often as usual would be a third of its time."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000)
    try:
        from distcommit.app.stored_job import StoredJob  # noqa: PLC0415 - help needs no job

        terminal = Terminal(as_json=as_json, verbose=verbose)
        with terminal.command():
            yield terminal, StoredJob.from_file(job, overrides or ())
    finally:
        gc.set_threshold(*usual)


def say_version(asked: bool) -> None:
    """Says which version this is, and ends the process, if asked to."""
    if asked:
        try:
            version = importlib.metadata.version("distcommit")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed: run from its source folder)"
        sys.stdout.write(f"distcommit {version}\n")
        raise typer.Exit


def ended_with(code: int) -> None:
    """Ends the command with an exit code, if it is not 0."""
    if code:
        raise typer.Exit(code)
