"""The command `distcommit dataset files`: what engines that take lists of files are given."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from distcommit.app.job import Job
from distcommit.app.reading.readers import read
from distcommit.cli.options import AsJson, JobFile, Verbose
from distcommit.cli.terminal import Terminal
from distcommit.core.records.log_records import CutPhase


class FilesResult(msgspec.Struct, frozen=True):
    """The files of datasets at one cut; `exactly_once` as of `Cut`."""

    epoch: int
    phase: int
    time_ms: int
    exactly_once: bool
    files: dict[str, list[str]]


def files(
    job: JobFile,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="URN", help="Only this dataset. Can be given again.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="EPOCH|TIME", help="What a run, or a time, has left.", show_default=False)
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Of a job with a fork: which.", show_default=False)] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the files that are committed, of all datasets at one cut. Reads only, also beside a live run."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        cut = read(job, dataset, branch=branch, as_of=as_of)
        result = FilesResult(cut.epoch, cut.phase, cut.time_ms, cut.exactly_once, cut.files_by_dataset())
        _show(terminal, result)
        if not any(result.files.values()):
            terminal.narrate(_why_none(result, Job.from_file(job), is_newest=as_of is None))


def _show(terminal: Terminal, result: FilesResult) -> None:
    """One file a line, and nothing else; or JSON."""
    if terminal.as_json:
        terminal.show(result, lambda _: "")
        return
    for path in (path for paths in result.files.values() for path in paths):
        terminal.say(path)


def _why_none(result: FilesResult, job: Job, *, is_newest: bool) -> str:
    """What to do where nothing is listed, which would look as if nothing had been asked."""
    if is_newest and result.phase == CutPhase.BEGAN and not result.files:
        return (
            f"there is no whole cut yet: the newest one is of epoch {result.epoch} as it began, and shows no file. Once"
            f" that run has ended there is one; if it lives no more, after `{job.command('run')}`"
        )
    when = "began" if result.phase == CutPhase.BEGAN else "ended"
    return (
        f"no file is committed at this cut, which is of epoch {result.epoch} as it {when}: `{job.command('status')}`"
        " tells how datasets stand"
    )
