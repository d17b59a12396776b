"""Commands that run a job, or show how it would."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.job_file.explain import explained
from distcommit.app.preview import try_out
from distcommit.cli.help_texts import RECORDS_LOST
from distcommit.cli.options import AsJson, JobFile, Overrides, Verbose, ended_with, opened
from distcommit.cli.progress_display import shown_progress
from distcommit.cli.views.datasets_view import replay_plan_view
from distcommit.cli.views.expire_view import retain_view
from distcommit.cli.views.explain_view import explain_view
from distcommit.cli.views.preview_view import run_or_try_out_view
from distcommit.cli.views.repair_view import repair_view
from distcommit.cli.views.result_views import recover_view, run_view
from distcommit.cli.views.runs_view import cancel_view
from distcommit.cli.views.verify_view import sweep_view
from distcommit.cli.web.flow_svg import flow_svg
from distcommit.core.errors import ConfigurationError
from distcommit.engine.driver.run import RunResult


def run(job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Replay what is pending, then ingest what is new."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with shown_progress(terminal.err) as shown:
            result = try_out(configured.config, shown) if configured.config.tries_out else configured.run(shown)
        terminal.show(result, run_or_try_out_view)
    ended_with(exit_code_of(result) if isinstance(result, RunResult) else 0 if result.succeeded else 1)


def exit_code_of(result: RunResult) -> int:
    """Return what `run` ends with."""
    if not result.succeeded:
        return 1
    return RECORDS_LOST if result.totals.positions_lost else 0


def recover(
    job: JobFile,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="URN", help="Replay this one alone.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done. Needs no Spark.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Replay what earlier runs had sealed and not finished, and ingest nothing."""
    succeeded = True
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        if dry_run:
            plan = configured.replay_plan(dataset)
            terminal.show(plan, replay_plan_view)
            succeeded = plan.goes_through
        else:
            with shown_progress(terminal.err) as shown:
                result = configured.recover(shown, dataset=dataset or "")
            terminal.show(result, recover_view)
            succeeded = result.succeeded
    ended_with(0 if succeeded else 1)


def gc(
    job: JobFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go. Needs no Spark.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete what nobody needs any more: each run does it, and so does this one, which replays first and ingests
    nothing."""
    succeeded = True
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        if dry_run:
            terminal.show(configured.sweeps(), sweep_view)
        else:
            with shown_progress(terminal.err) as shown:
                result = configured.recover(shown)
            terminal.show(result, recover_view)
            succeeded = result.succeeded
    ended_with(0 if succeeded else 1)


def reprocess(
    job: JobFile,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="DATASET", help="The dataset's URN, as status shows it.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dataset that has any, in one run.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Feed what was turned away of a dataset through the flow as it is now, exactly once."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        if bool(dataset) == everything:
            raise ConfigurationError(
                "this does not say what to reprocess",
                expected="a dataset's URN, or --all",
                found="both" if everything else "neither",
            )
        with shown_progress(terminal.err) as shown:
            result = configured.reprocess(dataset, shown) if dataset else configured.reprocess_all(shown)
        terminal.show(result, run_view)
    ended_with(0 if result.succeeded else 1)


def retain(
    job: JobFile,
    older_than: Annotated[
        str,
        typer.Option(metavar="AGE", help="Such as 90d, 36h or 12w; a time folder is as old as its end."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    when_unread: Annotated[
        bool,
        typer.Option("--when-unread", help="Leave older cuts alone: files go once no kept cut shows them."),
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Take published files away that are too old. Audit, rebuild and readers know them to be gone; watermarks stay."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with nullcontext() if dry_run else shown_progress(terminal.err) as shown:
            result = configured.retain(older_than, shown, dry_run=dry_run, when_unread=when_unread)
        terminal.show(result, retain_view)
    ended_with(0 if result.succeeded else 1)


def repair(
    job: JobFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be mended.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Mend what is wrong and needs nobody's decision (what was begun and not finished, damaged logs), and name the
    rest. Exit code 5 if something is left."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with nullcontext() if dry_run else shown_progress(terminal.err) as shown:
            result = configured.repair(shown, dry_run=dry_run)
        terminal.show(result, repair_view)
    ended_with(0 if result.is_well else 5)


def cancel(
    job: JobFile,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for its end.")] = 60,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """End a live run, from any machine that reaches the store: it publishes nothing more, and what it had sealed is
    replayed by the next run. Exit code 1 if it has not ended in time; it still will."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.cancel(
            wait_s=wait, told=lambda epoch: terminal.narrate(f"the run of epoch {epoch} is told to end")
        )
        terminal.show(result, cancel_view)
    ended_with(0 if result.ended else 1)


def explain(
    job: JobFile,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file, too.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the task flow, from source to sinks, with the columns after each step where they are known. Connects to
    nothing."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = explained(configured.config)
        if svg is not None:
            svg.write_text(flow_svg(result), encoding="utf-8")
        terminal.show(result, explain_view)
