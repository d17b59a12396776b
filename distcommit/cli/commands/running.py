"""Commands that run a job or its maintenance, or show what it would do."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from distcommit.app.checks.check_result import CheckFailedError
from distcommit.app.inspection.dry_runs.replay_plan import ReplayPlan
from distcommit.app.inspection.dry_runs.sweep_plan import SweepResult
from distcommit.app.inspection.rejected_records import (
    datasets_with_unreadable_files,
    newest_rejected,
    unreadable_files,
)
from distcommit.app.jobs.job import Job
from distcommit.app.jobs.preview import PreviewResult, run_preview
from distcommit.cli.command_decorators import on_job, on_job_state
from distcommit.cli.exit_codes import exit_code_of
from distcommit.cli.progress_display import shown_progress
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.check_view import problems_view
from distcommit.cli.views.dry_run_views import replay_plan_view, sweep_view
from distcommit.cli.views.maintenance_views import compaction_view, expiry_view
from distcommit.cli.views.preview_view import run_or_preview_view
from distcommit.cli.views.run_result_view import recover_view, reprocess_view
from distcommit.cli.views.run_view_components import rejected_view
from distcommit.cli.views.runs_view import cancel_view
from distcommit.cli.views.verify_and_repair_view import repair_view
from distcommit.cli.views.view_components import page
from distcommit.core.errors import ConfigurationError
from distcommit.engine.driver.run import RunResult
from distcommit.engine.system_clock import SystemClock


@on_job
def run(terminal: Terminal, job: Job) -> int:
    """Complete interrupted commits, then ingest new records.

    Exit code 1 if a dataset failed, was skipped or is pending; 7 if the source had lost records.
    """
    try:
        with shown_progress(terminal.err, "check the job, start Spark", job.config.source.size_unit) as shown:
            result = run_preview(job.config, shown) if job.config.tries_out else job.run(shown)
    except CheckFailedError as error:
        terminal.err.print(problems_view(error.problems))
        raise
    terminal.show(result, lambda shown: page(run_or_preview_view(shown), _after_run(job, shown)))
    return exit_code_of(result) if isinstance(result, RunResult) else 0 if result.succeeded else 1


def _after_run(job: Job, result: RunResult | PreviewResult) -> RenderableType | None:
    """Return lines about a run's rejected records and unreadable files: how many, where they are listed, and the
    command that processes rejected records again. None if there are none, or for a preview.
    """
    if not isinstance(result, RunResult):
        return None
    lines: list[RenderableType] = []
    rejected = newest_rejected(job.open_store(create=False), SystemClock()) if result.totals.records_rejected else None
    if rejected is not None and rejected.epoch == result.epoch:
        lines.append(rejected_view(rejected, f"{job.command('dataset reprocess')} --all"))
    if unreadable := unreadable_files(result.totals.flow):
        datasets = datasets_with_unreadable_files(job.open_store(create=False), result.run_id)
        files = "1 unreadable file" if unreadable == 1 else f"{unreadable:,} unreadable files"
        of = "1 dataset" if datasets == 1 else f"{datasets:,} datasets"
        lines.append(Text(f"{files} in {of}, listed by {job.command('runs')} {result.epoch}", style="yellow"))
    return Group(*lines) if lines else None


class RecoverPlan(ReplayPlan, frozen=True):
    """The plan of `recover --dry-run`.

    Attributes:
        sweep: orphaned files to delete; None if only one dataset is recovered.
    """

    sweep: SweepResult | None = None


@on_job
def recover(
    terminal: Terminal,
    job: Job,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="URN", help="Replay one dataset only.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Needs no Spark.")] = False,
) -> int:
    """Complete interrupted commits, delete orphaned files; ingest nothing.

    Exit code 1 if something is left pending.
    """
    if dry_run:
        replay, sweep = job.replay_plan(dataset), None if dataset else job.sweeps()
        plan = RecoverPlan(**msgspec.structs.asdict(replay), sweep=sweep)
        terminal.show(plan, lambda plan: page(replay_plan_view(plan), sweep_view(plan.sweep) if plan.sweep else None))
        return 0 if plan.succeeds else 1
    with shown_progress(terminal.err) as shown:
        result = job.recover(shown, dataset=dataset or "")
    terminal.show(result, recover_view)
    return 0 if result.succeeded else 1


@on_job
def reprocess(
    terminal: Terminal,
    job: Job,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="DATASET", help="Dataset URN, as `status` shows it.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Reprocess every dataset that has any.")] = False,
) -> int:
    """Process rejected records again, by the job file as it is now.

    Each record is published or rejected exactly once. Exit code 1 if a dataset failed.
    """
    if bool(dataset) == everything:
        raise ConfigurationError(
            "dataset reprocess must be given one dataset or --all",
            id="ARGUMENT_INVALID",
            expected="DATASET or --all",
            found="both" if everything else "neither",
        )
    with shown_progress(terminal.err) as shown:
        result = job.reprocess(dataset, shown) if dataset else job.reprocess_all(shown)
    again = f"{job.command('dataset reprocess')} {dataset or '--all'}"
    terminal.show(result, lambda shown: reprocess_view(shown, again))
    return 0 if result.succeeded else 1


@on_job
def expire(
    terminal: Terminal,
    job: Job,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Age such as 90d, 36h or 12w.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    keep_snapshots: Annotated[
        bool,
        typer.Option("--keep-snapshots", help="Delete a file once no snapshot lists it."),
    ] = False,
) -> int:
    """Delete published files that are older than an age.

    A time folder is as old as its end. Watermarks stay; audit, rebuild and readers know that the files were expired.
    Exit code 1 if it is incomplete: repeat the command.
    """
    with nullcontext() if dry_run else shown_progress(terminal.err) as shown:
        result = job.expire(older_than, shown, dry_run=dry_run, keep_snapshots=keep_snapshots)
    terminal.show(result, expiry_view)
    return 0 if result.succeeded else 1


@on_job
def compact(
    terminal: Terminal,
    job: Job,
    datasets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATASET]...", help="Dataset URNs; without any, all.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be merged. Needs no Spark.")] = False,
) -> int:
    """Merge small published files, without changing a record.

    The section `compact` of the job file sets their size, number and age.

    Before the commit, each merged file is compared with the files that it replaces. Snapshot readers see the old files
    or the new ones. Later runs delete the old files. Exit code 1 if a dataset could not be compacted.
    """
    with nullcontext() if dry_run else shown_progress(terminal.err) as shown:
        result = job.compact(datasets or (), shown, dry_run=dry_run)
    terminal.show(result, compaction_view)
    return 0 if result.succeeded else 1


@on_job
def repair(
    terminal: Terminal,
    job: Job,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be repaired.")] = False,
) -> int:
    """Apply each repair that is safe to automate, and list the rest.

    It repairs damaged logs and finishes interrupted commands. Problems that need an operator's decision are listed
    with their commands. Exit code 5 if a problem is left.
    """
    with nullcontext() if dry_run else shown_progress(terminal.err) as shown:
        result = job.repair(shown, dry_run=dry_run)
    terminal.show(result, repair_view)
    return 0 if result.is_well else 5


@on_job_state
def cancel(
    terminal: Terminal,
    job: Job,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait this long for its end.")] = 60,
) -> int:
    """Cancel a live run, from any machine that reaches the store.

    The run publishes nothing more; the next run replays what it sealed. Exit code 1 if it has not ended in time; it
    still ends.
    """
    result = job.cancel(
        wait_s=wait, on_request=lambda epoch: terminal.narrate(f"sent the cancel request to the run of epoch {epoch}")
    )
    terminal.show(result, cancel_view)
    return 0 if result.ended else 1
