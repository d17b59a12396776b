"""What the commands on a job have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.job import Job
from distcommit.cli.terminal import Terminal

JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Wins over the job file. Can be given again and again."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; all else on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Logs, Spark's own among them, and tracebacks.")]


@contextlib.contextmanager
def opened(job: Path, overrides: list[str] | None, as_json: bool, verbose: bool) -> Iterator[tuple[Terminal, Job]]:
    """One command on the job of a file."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield terminal, Job.from_file(job, overrides or ())
