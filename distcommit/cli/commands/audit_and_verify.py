"""Commands that compare stored or published data with what it should be, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distcommit.app.jobs.job import Job
from distcommit.cli.command_decorators import FromFile, FromGroup, on_job_state
from distcommit.cli.terminal import Terminal
from distcommit.cli.views.audit_view import audit_view
from distcommit.cli.views.log_view import log_view
from distcommit.cli.views.migration_views import compare_view
from distcommit.cli.views.verify_and_repair_view import verify_view
from distcommit.core.errors import ConfigurationError


@on_job_state
def log(
    terminal: Terminal,
    job: Job,
    bucket: Annotated[
        int | None,
        typer.Option(metavar="N", help="Show the log of bucket N; default: the job log.", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="URN", help="Show the records of one dataset.", show_default=False)
    ] = None,
) -> int:
    """Show the records of a commit log, and why a record is ignored.

    Reads only. Exit code 5 if a segment is unreadable.
    """
    result = job.log(bucket=bucket, dataset=dataset)
    terminal.show(result, log_view)
    return 5 if any(line.unreadable for line in result.lines) else 0


@on_job_state
def verify_store(terminal: Terminal, job: Job) -> int:
    """Verify all logs, and compare them with the records of runs.

    Reads only. Exit code 5 if a problem is found.
    """
    result = job.verify_store()
    terminal.show(result, verify_view)
    return 0 if result.is_well else 5


@on_job_state
def audit(
    terminal: Terminal,
    job: Job,
    deep: Annotated[bool, typer.Option("--deep", help="Read every record, not only file metadata.")] = False,
) -> int:
    """Check that each offset below the watermarks is published once.

    With commit.delivery: at_least_once, check that it is published at least once. Reads only. Must not run beside a
    live run. Exit code 6 if the output is not exact.
    """
    result = job.audit(deep=deep)
    terminal.show(result, audit_view)
    return 0 if result.passed else 6


@on_job_state
def compare(
    terminal: Terminal,
    job: Job,
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER.yaml", help="Job file of another job.", show_default=False)
    ] = None,
    file: FromFile = None,
    group: FromGroup = None,
) -> int:
    """Compare published offsets with another job or system.

    Requires exactly one of OTHER.yaml, --from and --kafka-group. Reads only. Exit code 6 if they differ.
    """
    supplied = [name for name, value in (("OTHER.yaml", other), ("--from", file), ("--kafka-group", group)) if value]
    if len(supplied) != 1:
        raise ConfigurationError(
            "migrate compare must have one other side",
            id="ARGUMENT_INVALID",
            expected="OTHER.yaml, --from or --kafka-group",
            found=" and ".join(supplied) or "none",
        )
    result = job.compare(other or file, group=group)
    terminal.show(result, compare_view)
    return 0 if result.is_equal else 6
