"""The command `distcommit`: thin over `distcommit.app`. What each command does stands in the modules beside this."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from distcommit.cli import by_hand, looking, moving, reporting, running, serving
from distcommit.cli.exit_codes import EXIT_CODES
from distcommit.cli.options import AsJson, Verbose, ended_with, say_version
from distcommit.cli.output import demo_view
from distcommit.cli.readers import files
from distcommit.cli.terminal import Terminal
from distcommit.fs.local import LocalFileSystem
from distcommit.stores.deletion import delete_tree

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


app.command()(files)


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", is_eager=True, callback=say_version)
    ] = False,
) -> None:
    """The options of the command itself."""


app.command()(running.run)
app.command()(running.recover)
app.command()(running.gc)
app.command()(running.cancel)
app.command()(running.explain)
app.command()(running.reprocess)
app.command()(running.retain)
app.command()(running.repair)
app.command("serve")(serving.serve_jobs)
app.command()(serving.pause)
app.command()(serving.resume)
app.command()(serving.trigger)
app.command()(looking.status)
app.command()(looking.datasets)
app.command()(looking.steps)
app.command()(looking.runs)
app.command()(reporting.report)
app.command()(reporting.ui)
app.command()(looking.log)
app.command("verify-store")(looking.verify_store)
app.command()(looking.audit)
app.command(options_metavar="[--all] [OPTIONS]")(by_hand.release)
app.command()(by_hand.quarantine)
app.command("set-watermark")(by_hand.set_watermark)
app.command("import-watermarks")(moving.import_watermarks)
app.command()(looking.compare)
app.command("convert-gobblin")(moving.convert_gobblin)
app.command()(moving.rebuild)
app.command()(moving.rebucket)


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
            delete_tree(LocalFileSystem(durable=False), str(place))
        else:
            terminal.say(f" its files are in {place}")
    ended_with(0 if result.exact else 6)


def main() -> None:
    """The console entry point."""
    app(prog_name="distcommit")
