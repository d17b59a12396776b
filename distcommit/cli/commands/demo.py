"""The command that shows what the product does, on a broker that it brings along."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from distcommit.cli.options import AsJson, Verbose, ended_with
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.result_views import demo_view
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.stores.folders.trees import delete_tree


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
        where = folder or Path(tempfile.mkdtemp(prefix="distcommit-demo-"))
        result = run_demo(where, terminal.say)
        terminal.say("")
        terminal.show(result, demo_view)
        if folder is None and result.exact and not keep:
            delete_tree(LocalFileSystem(durable=False), str(where))
        else:
            terminal.say(f" its files are in {where}")
    ended_with(0 if result.exact else 6)
