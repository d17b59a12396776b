"""The command `distcommit dataset files`, for engines that read lists of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from distcommit.app.jobs.job import Job
from distcommit.app.reading.snapshot_reader import read
from distcommit.cli.command_decorators import on_job_file
from distcommit.cli.terminal import Terminal
from distcommit.core.records.job_log_records import CutPhase


class FilesResult(msgspec.Struct, frozen=True):
    """The files of datasets in one snapshot.

    Attributes:
        epoch: epoch of the run that wrote the snapshot.
        phase: 1 if the run wrote it at its beginning, 2 if at its end.
        time_ms: time of the snapshot in milliseconds since 1970.
        exactly_once: whether each record is in exactly one of the files.
        files: paths by dataset URN.
    """

    epoch: int
    phase: int
    time_ms: int
    exactly_once: bool
    files: dict[str, list[str]]


@on_job_file
def files(
    terminal: Terminal,
    job: Path,
    dataset: Annotated[list[str] | None, typer.Option(metavar="URN", help="List one dataset. Repeatable.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="EPOCH|TIME", help="Read the snapshot of a run, or of a time.", show_default=False),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Branch, if the job has a fork.", show_default=False)
    ] = None,
) -> None:
    """List the committed files of all datasets at one snapshot.

    Reads only; safe beside a live run.
    """
    cut = read(job, dataset, branch=branch, as_of=as_of)
    result = FilesResult(cut.epoch, cut.phase, cut.time_ms, cut.exactly_once, cut.files_by_dataset())
    if terminal.as_json:
        terminal.show(result, lambda _: "")
    else:
        for path in (path for paths in result.files.values() for path in paths):
            terminal.print_line(path)
    if not any(result.files.values()):
        terminal.narrate(_no_files_reason(result, Job.from_file(job, needs_variables=False), is_newest=as_of is None))


def _no_files_reason(result: FilesResult, job: Job, *, is_newest: bool) -> str:
    if is_newest and result.phase == CutPhase.BEGAN and not result.files:
        return (
            f"no complete snapshot exists yet: the newest one is of the beginning of epoch {result.epoch}. Wait for the"
            f" end of that run; if it died, use `{job.command('run')}`"
        )
    when = "beginning" if result.phase == CutPhase.BEGAN else "end"
    return (
        f"no file is committed in this snapshot, of the {when} of epoch {result.epoch}; use `{job.command('status')}`"
        " to show the datasets"
    )
