"""Commands on a job file before its first run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.checks.job_check import check_file
from distcommit.app.checks.new_job_file import write_job_file
from distcommit.cli.command_decorators import on_unread_job_file, without_job
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.check_view import check_view, problems_view
from distcommit.cli.views.view_components import page
from distcommit.cli.web.flow_svg import flow_svg


@on_unread_job_file
def check(
    terminal: Terminal,
    path: Path,
    overrides: Sequence[str],
    plan: Annotated[bool, typer.Option("--plan", help="List the datasets that a run would read.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Check the job file only; connect to nothing.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the flow into an SVG file.", show_default=False)
    ] = None,
) -> int:
    """Check a job before it runs, and list all problems.

    Checks settings, secrets, task flow, Java, folders, store, source and sinks, without Spark. Each run makes the same
    check first. Exit code 2 if a setting is wrong; 4 if only a system is unavailable.
    """
    result = check_file(path, overrides, connect=not offline, plan=plan)
    if svg is not None and result.flow is not None:
        svg.write_text(flow_svg(result.flow), encoding="utf-8")
    terminal.show(result, check_view)
    return result.exit_code


@without_job
def init(
    terminal: Terminal,
    path: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The new job file.")],
    source: Annotated[str, typer.Option("--source", metavar="TYPE", help="Type of the source.")],
    sink: Annotated[str, typer.Option("--sink", metavar="TYPE", help="Type of the sink.")] = "files",
) -> int:
    """Write a commented job file for a source and a sink.

    The file has the settings that matter, and is checked without connecting. Edit it, then run `distcommit check`.
    """
    result = write_job_file(path, source, sink)
    terminal.show(result, lambda new: page(f"[bold green]written[/]: {new.job_file}", problems_view(new.problems)))
    terminal.narrate(f"edit it, then run: distcommit check {path}")
    return 2 if result.problems else 0
