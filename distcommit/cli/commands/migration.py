"""Commands that carry state over: from elsewhere, to another number of buckets, or from published files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.gobblin.convert import convert_job
from distcommit.cli.options import AsJson, FromFile, FromGroup, JobFile, Overrides, Verbose, ended_with, opened
from distcommit.cli.progress_display import shown_progress
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.convert_view import convert_view
from distcommit.cli.views.result_views import import_view, rebucket_view, rebuild_view
from distcommit.stores.state.job_store import MAX_BUCKETS


def import_watermarks(
    job: JobFile,
    file: FromFile = None,
    group: FromGroup = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Also where there is a watermark already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be set.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Go on where another system stopped: set the watermarks of datasets that have none. Can be repeated."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.import_watermarks(file, group=group, overwrite=overwrite, dry_run=dry_run)
        terminal.show(result, import_view)


def rebuild(
    job: JobFile,
    accept_gaps: Annotated[
        bool,
        typer.Option("--accept-gaps", help="Record offsets that no file has as skipped (compacted topics have such)."),
    ] = False,
    keep_watermarks: Annotated[
        bool,
        typer.Option(
            "--keep-watermarks", help="Look at no file: go on from what the older store knows, or what you set by hand."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Mend a store that is lost or older than what was published, from the published files."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.rebuild(accept_gaps=accept_gaps, keep_watermarks=keep_watermarks, dry_run=dry_run)
        terminal.show(result, rebuild_view)
    ended_with(5 if result.problems else 0)


def rebucket(
    job: JobFile,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_BUCKETS, help="How many there are to be; by default as many as there are."),
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Give the job another number of buckets, or another source.dataset; given again, it finishes what was begun."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with shown_progress(terminal.err, "look") as shown:
            result = configured.rebucket(buckets, shown)
        terminal.show(result, rebucket_view)


def convert_gobblin(
    file: Annotated[Path, typer.Argument(metavar="FILE.pull", help="A Gobblin job's properties.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="JOB.yaml", help="The new job file; without it, stdout.")
    ] = None,
    sysconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Properties of all jobs, as Gobblin's launcher takes them.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of all jobs; .properties of the folders down from it count, too."),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make a job file of a Gobblin job that brings Kafka topics into files, and name each property it leaves out."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        result = convert_job(file, output, sysconfig=sysconfig, root=root)
        if output is None and not as_json:
            typer.echo(result.job_file, nl=False)
        else:
            terminal.show(result, convert_view)
