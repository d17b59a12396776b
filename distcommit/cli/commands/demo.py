"""The command `distcommit demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from distcommit.cli.command_decorators import without_job
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.demo_result_view import demo_view
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.folders.folder_trees import delete_tree


@without_job
def demo(
    terminal: Terminal,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Write to a new or empty folder, and keep it."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
) -> int:
    """Ingest 336,776 flights, kill the run in mid-commit, and recover.

    Starts an embedded Kafka broker, resumes after the kill and compares what was published with what was produced.
    Exit code 6 if they differ.
    """
    from distcommit.app.demo.demo_run import run_demo  # noqa: PLC0415 - needs a Kafka client

    location = folder or Path(tempfile.mkdtemp(prefix="distcommit-demo-"))
    result = run_demo(location, terminal.print_line)
    terminal.print_line("")
    terminal.show(result, demo_view)
    if folder is None and result.exact and not keep:
        delete_tree(LocalFileSystem(durable=False), str(location))
    else:
        terminal.print_line(f" its files are in {location}")
    return 0 if result.exact else 6
