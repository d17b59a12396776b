"""Commands that set up stored state: from another system, for other buckets, or from published files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.jobs.job import Job
from distcommit.app.migration.gobblin.convert_gobblin_job import convert_job
from distcommit.cli.command_decorators import FromFile, FromGroup, on_job, without_job
from distcommit.cli.progress_display import shown_progress
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.migration_views import convert_view, import_view, rebucket_view, rebuild_view
from distcommit.stores.state.job_store import MAX_BUCKETS


@on_job
def import_watermarks(
    terminal: Terminal,
    job: Job,
    file: FromFile = None,
    group: FromGroup = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing watermarks too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be set.")] = False,
) -> None:
    """Set watermarks to the positions of another system or job.

    Datasets that already have a watermark keep it. Can be repeated.
    """
    result = job.import_watermarks(file, group=group, overwrite=overwrite, dry_run=dry_run)
    terminal.show(result, import_view)


@on_job
def rebuild(
    terminal: Terminal,
    job: Job,
    accept_gaps: Annotated[
        bool,
        typer.Option("--accept-gaps", help="Record offsets in no file as skipped, as in compacted topics."),
    ] = False,
    keep_watermarks: Annotated[
        bool,
        typer.Option("--keep-watermarks", help="Read no files; keep the watermarks of the store."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
) -> int:
    """Rebuild a lost or outdated store from the published files.

    Exit code 5 if it can't be rebuilt.
    """
    result = job.rebuild(accept_gaps=accept_gaps, keep_watermarks=keep_watermarks, dry_run=dry_run)
    terminal.show(result, rebuild_view)
    return 5 if result.problems else 0


@on_job
def rebucket(
    terminal: Terminal,
    job: Job,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_BUCKETS, metavar="N", help="New number; default: as many as now."),
    ] = None,
) -> None:
    """Change the number of buckets, or apply a new source.dataset.

    All datasets must be idle. Repeat the command to finish an interrupted one.
    """
    with shown_progress(terminal.err, "look") as shown:
        result = job.rebucket(buckets, shown)
    terminal.show(result, rebucket_view)


@without_job
def convert_gobblin(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(metavar="FILE.pull", help="Properties of a Gobblin job.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="JOB.yaml", help="New job file; default: stdout.")
    ] = None,
    sysconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Properties of all jobs (Gobblin's launcher), or the job's template."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of all jobs; .properties files below it apply too."),
    ] = None,
) -> None:
    """Convert a Gobblin job into a job file.

    Lists each property that was not converted.
    """
    result = convert_job(file, output, sysconfig=sysconfig, root=root)
    if output is None and not terminal.as_json:
        typer.echo(result.job_file, nl=False)
    else:
        terminal.show(result, convert_view)
