"""Options that commands share, and decorators that turn functions into commands.

A command's function takes a terminal, mostly a job, and its own options, and returns an exit code. The decorator adds
the shared options, opens the job and exits with the code.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from distcommit.cli.terminal import Terminal

if TYPE_CHECKING:
    from distcommit.app.jobs.job import Job
    from distcommit.app.jobs.stored_job import StoredJob

_Own = ParamSpec("_Own")

JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", hidden=True)]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Dataset URN, as `status` shows it.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a job-file setting. Repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all logs, and tracebacks of errors.")]
Watch = Annotated[float, typer.Option("--watch", min=0, metavar="SECONDS", help="Repeat until Ctrl-C.")]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="CSV file with the columns dataset, partition, next_offset; JSON that Gobblin exported with"
        " `job-state-store --read-job-state --keepConfig`; or the .yaml of another job.",
    ),
]
FromGroup = Annotated[str | None, typer.Option("--kafka-group", metavar="NAME", help="Kafka consumer group.")]


def on_job(act: Callable[Concatenate[Terminal, Job, _Own], int | None]) -> Callable[..., None]:
    """Turn a function that runs or changes a job into a command."""
    return _command(act, _opened_job, options=2)


def on_job_state(act: Callable[Concatenate[Terminal, Job, _Own], int | None]) -> Callable[..., None]:
    """Turn a function that uses the job's store into a command. Environment variables that the job file names for other
    settings may be unset.
    """
    return _command(act, _opened_state, options=2)


def on_stored_job(act: Callable[Concatenate[Terminal, StoredJob, _Own], int | None]) -> Callable[..., None]:
    """Turn a function that only reads a job's stored state into a command. Such a command imports no Spark."""
    return _command(act, _opened_stored_job, options=2)


def on_job_file(act: Callable[Concatenate[Terminal, Path, _Own], int | None]) -> Callable[..., None]:
    """Turn a function of a job file's path into a command without the option `--set`."""
    return _command(act, _named_job_file, options=2)


def on_unread_job_file(
    act: Callable[Concatenate[Terminal, Path, Sequence[str], _Own], int | None],
) -> Callable[..., None]:
    """Turn a function of a job file's path and its overrides into a command. The file may be invalid."""
    return _command(act, _unread_job_file, options=3)


def without_job(act: Callable[Concatenate[Terminal, _Own], int | None]) -> Callable[..., None]:
    """Turn a function that needs no job into a command."""
    return _command(act, _with_terminal, options=1)


def as_service(act: Callable[Concatenate[Terminal, Sequence[str], _Own], int | None]) -> Callable[..., None]:
    """Turn a function that serves jobs for days into a command. Its second argument has overrides of all job files."""
    return _command(act, _terminal_for_days, options=2)


def _command(
    act: Callable[..., int | None], opened: Callable[..., AbstractContextManager[tuple[Any, ...]]], options: int
) -> Callable[..., None]:
    """Return a command with the options of `opened` and of `act`. It enters the context manager that `opened` returns,
    calls `act`, and exits with the returned code. The context manager yields the first `options` arguments of `act`.
    """
    own = list(inspect.signature(act, eval_str=True).parameters.values())[options:]
    shared = list(inspect.signature(opened, eval_str=True).parameters.values())
    first = [parameter for parameter in shared if parameter.default is parameter.empty]
    parameters = [*first, *own, *(parameter for parameter in shared if parameter not in first)]

    def command(**values: Any) -> None:
        code: int | None = None
        with opened(**{parameter.name: values.pop(parameter.name) for parameter in shared}) as context:
            code = act(*context, **values)
        if code:
            raise typer.Exit(code)

    command.__name__, command.__doc__ = act.__name__, act.__doc__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return command


@contextlib.contextmanager
def _opened_job(
    job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> Iterator[tuple[Any, ...]]:
    from distcommit.app.jobs.job import Job  # noqa: PLC0415 - commands that only read do not need it

    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield terminal, Job.from_file(job, overrides or ())


@contextlib.contextmanager
def _opened_state(
    job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> Iterator[tuple[Any, ...]]:
    from distcommit.app.jobs.job import Job  # noqa: PLC0415 - as above

    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield terminal, Job.from_file(job, overrides or (), needs_variables=False)


@contextlib.contextmanager
def _opened_stored_job(
    job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> Iterator[tuple[Any, ...]]:
    """Open a job for reading, and make garbage collection rare until the command ends, which saves a third of its time.
    Results have few reference cycles.
    """
    usual = gc.get_threshold()
    gc.set_threshold(100_000)
    try:
        from distcommit.app.jobs.stored_job import StoredJob  # noqa: PLC0415 - help needs no job

        terminal = Terminal(as_json=as_json, verbose=verbose)
        with terminal.command():
            yield terminal, StoredJob.from_file(job, overrides or (), needs_variables=False)
    finally:
        gc.set_threshold(*usual)


@contextlib.contextmanager
def _named_job_file(job: JobFile, as_json: AsJson = False, verbose: Verbose = False) -> Iterator[tuple[Any, ...]]:
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield terminal, job


@contextlib.contextmanager
def _unread_job_file(
    job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> Iterator[tuple[Any, ...]]:
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield terminal, job, overrides or ()


@contextlib.contextmanager
def _with_terminal(as_json: AsJson = False, verbose: Verbose = False) -> Iterator[tuple[Any, ...]]:
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        yield (terminal,)


@contextlib.contextmanager
def _terminal_for_days(
    overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> Iterator[tuple[Any, ...]]:
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command(lasts=True):
        yield terminal, overrides or ()


def show_version(requested: bool) -> None:
    """Print the version and exit, if `requested`."""
    if requested:
        try:
            version = importlib.metadata.version("distcommit")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed: run from its source folder)"
        sys.stdout.write(f"distcommit {version}\n")
        raise typer.Exit
