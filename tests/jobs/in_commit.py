"""Runs that are killed in the middle of their commit.

The files of such a test belong on a disk: in memory a commit ends before it can be observed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from distcommit.app.jobs.job import Job


def killed_in_commit(job_file: Path, start: Callable[[], RunProcess]) -> bool:
    """Start a run, and kill it as soon as it has sealed a dataset; return False if it ended earlier."""
    watcher = CommitWatcher(Job.from_file(job_file).open_store(create=True))
    with start() as run:
        while not run.has_ended and not watcher.pending():
            run.wait(0.002)
        had_ended = run.has_ended
        run.kill()
    return not had_ended


def run_of(job_file: Path, name: str, command: str = "run") -> RunProcess:
    """Start a command on a job; its output goes beside the job file, under this name."""
    out = job_file.parent / name
    return RunProcess([command, str(job_file), "--json"], out.with_suffix(".out"), out.with_suffix(".err"))
