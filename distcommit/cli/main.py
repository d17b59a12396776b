"""The command `distcommit`: thin over `distcommit.app`."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from distcommit.app.explain import explained
from distcommit.app.job import Job
from distcommit.cli.audit_view import audit_view
from distcommit.cli.display import shown_progress
from distcommit.cli.exit_codes import EXIT_CODES
from distcommit.cli.explain_view import explain_view
from distcommit.cli.flow_svg import flow_svg
from distcommit.cli.options import AsJson, JobFile, Overrides, Verbose, opened
from distcommit.cli.output import (
    compare_view,
    demo_view,
    import_view,
    log_view,
    rebucket_view,
    rebuild_view,
    recover_view,
    run_view,
    status_view,
)
from distcommit.cli.terminal import Terminal
from distcommit.model.errors import ConfigurationError
from distcommit.model.watermark import Position
from distcommit.stores.by_hand import Release
from distcommit.stores.job_store import MAX_BUCKETS

app = typer.Typer(
    name="distcommit",
    help="Exactly-once ingestion of many datasets, from Kafka to files, on Spark.",
    epilog=EXIT_CODES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        try:
            version = importlib.metadata.version("distcommit")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed: run from its source folder)"
        sys.stdout.write(f"distcommit {version}\n")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """The options of the command itself."""


@app.command()
def run(job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Replay what is pending, then ingest what is new."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with shown_progress(terminal.err) as shown:
            result = configured.run(shown)
        terminal.show(result, run_view)
    _exit(0 if result.succeeded else 1)


@app.command()
def recover(job: JobFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Replay what earlier runs had sealed and not finished, and ingest nothing."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with shown_progress(terminal.err) as shown:
            result = configured.recover(shown)
        terminal.show(result, recover_view)
    _exit(0 if result.succeeded else 1)


@app.command()
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


@app.command()
def reprocess(
    job: JobFile,
    dataset: Annotated[str, typer.Argument(help="The dataset's URN, as status shows it.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Feed what was turned away of a dataset through the flow as it is now, exactly once."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with shown_progress(terminal.err) as shown:
            result = configured.reprocess(dataset, shown)
        terminal.show(result, run_view)
    _exit(0 if result.succeeded else 1)


@app.command()
def status(
    job: JobFile,
    show_all: Annotated[bool, typer.Option("--all", help="List idle datasets too.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show what is stored of the job. Reads only, also beside a live run; exit code 5 if a log can't be read."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.status()
        terminal.show(result, partial(status_view, show_all=show_all))
    _exit(5 if result.unreadable else 0)


@app.command()
def log(
    job: JobFile,
    bucket: Annotated[
        int | None, typer.Option(help="A bucket's log; without it the job log.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="URN", help="What concerns a dataset in its bucket's log.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show a commit log: each record, who wrote it, and why it does not count, if so. Reads only.

    Exit code 5 if a segment can't be read.
    """
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.log(bucket=bucket, dataset=dataset)
        terminal.show(result, log_view)
    _exit(5 if any(line.unreadable for line in result.lines) else 0)


@app.command()
def audit(
    job: JobFile,
    deep: Annotated[bool, typer.Option("--deep", help="Read every record, not only the files' metadata.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Check that every offset below the watermarks is published exactly once (with commit.delivery: at_least_once, at
    least once). Reads only; not beside a live run."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        result = configured.audit(deep=deep)
        terminal.show(result, audit_view)
    _exit(0 if result.passed else 6)


@app.command(options_metavar="[--all] [OPTIONS]")
def release(
    job: JobFile,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATASET] HOW",
            show_default=False,
            help="The dataset's URN, as status shows it, and how. retry: the next run replays it again, or"
            " reads it again if it was stopped. accept: it"
            " counts as done as it is, what is not published is lost. abandon: it is undone, and the next run reads its"
            " records again. With --all only retry.",
        ),
    ],
    everything: Annotated[bool, typer.Option("--all", help="Every quarantined or stopped dataset.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Release a quarantined dataset, or one that was stopped. What you do is recorded in its log with your name."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    unreadable = False
    with terminal.command():
        expected = ["DATASET", "|".join(Release)] if not everything else [Release.RETRY]
        if len(words) != len(expected) or words[-1] not in (Release.RETRY, *(() if everything else Release)):
            raise ConfigurationError(
                "this is no way to release" + (" all datasets" if everything else " a dataset"),
                expected=" ".join(expected),
                found=" ".join(words),
            )
        configured = Job.from_file(job, overrides or ())
        if everything:
            retried = configured.retry_all()
            _show_datasets(terminal, configured, retried.datasets)
            unreadable = bool(retried.unreadable)
        else:
            acts = {"retry": configured.retry, "accept": configured.accept, "abandon": configured.abandon}
            acts[words[1]](words[0])
            _show_datasets(terminal, configured, words[:1])
    _exit(5 if unreadable else 0)


@app.command()
def quarantine(
    job: JobFile,
    dataset: Annotated[str, typer.Argument(help="The dataset's URN, as status shows it.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Let no run go on with a pending dataset until you release it: if what it needs is gone for good."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        configured.quarantine(dataset)
        _show_datasets(terminal, configured, [dataset])


@app.command("set-watermark")
def set_watermark(
    job: JobFile,
    dataset: Annotated[str, typer.Argument(help="The dataset's URN, as status shows it.")],
    positions: Annotated[
        str, typer.Argument(help="The next position to read, by partition: '{\"0\": 1200}'; or null.")
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
            wanted = msgspec.json.decode(positions, type=dict[str, Position] | None)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                "these are not positions by partition",
                expected='JSON such as {"0": 1200}',
                found=f"{positions}: {error}",
            ) from error
        configured = Job.from_file(job, overrides or ())
        configured.set_watermark(dataset, wanted, new=new)
        _show_datasets(terminal, configured, [dataset])


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


@app.command("import-watermarks")
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


@app.command()
def compare(
    job: JobFile,
    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER.yaml]", help="Another job's file.", show_default=False)
    ] = None,
    file: FromFile = None,
    group: FromGroup = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare with what another job has published, or with where another system stands. Reads only."""
    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        if [other, file, group].count(None) != 2:
            raise ConfigurationError("compare with one thing", expected="OTHER.yaml, --from or --kafka-group")
        result = Job.from_file(job, overrides or ()).compare(other or file, group=group)
        terminal.show(result, compare_view)
    _exit(0 if result.same else 6)


@app.command()
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
    _exit(5 if result.problems else 0)


@app.command()
def rebucket(
    job: JobFile,
    buckets: Annotated[int, typer.Option(min=1, max=MAX_BUCKETS, help="How many there are to be.", show_default=False)],
    overrides: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Give the job another number of buckets; all datasets have to be idle. Given again, it finishes what was begun."""
    with opened(job, overrides, as_json, verbose) as (terminal, configured):
        with shown_progress(terminal.err, "look") as shown:
            result = configured.rebucket(buckets, shown)
        terminal.show(result, rebucket_view)


def _show_datasets(terminal: Terminal, job: Job, urns: Collection[str]) -> None:
    found = job.status()
    result = msgspec.structs.replace(found, datasets=[row for row in found.datasets if row.dataset in set(urns)])
    terminal.show(result, partial(status_view, show_all=True))


@app.command()
def demo(
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="A new or empty folder for all files; it is kept."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Ingest 336,776 flights from an embedded broker, kill the run in mid-commit, go on, and count."""
    from distcommit.app.demo.story import run_demo  # noqa: PLC0415 - needs a Kafka client

    terminal = Terminal(as_json=as_json, verbose=verbose)
    with terminal.command():
        place = folder or Path(tempfile.mkdtemp(prefix="distcommit-demo-"))
        result = run_demo(place, terminal.say)
        terminal.say("")
        terminal.show(result, demo_view)
        if folder is None and result.exact and not keep:
            shutil.rmtree(place)
        else:
            terminal.say(f" its files are in {place}")
    _exit(0 if result.exact else 6)


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def main() -> None:
    """The console entry point."""
    app(prog_name="distcommit")
