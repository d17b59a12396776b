"""A run that dies in the middle of its commit.

The files of such a test belong on a disk: in memory a commit is over sooner than anybody can look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from distcommit.app.demo.kill import CommitWatcher, RunProcess
from distcommit.app.job import Job


def killed_in_commit(job_file: Path, start: Callable[[], RunProcess]) -> bool:
    """Starts a run, and kills it as soon as it has sealed something; False if it had ended by itself before."""
    watcher = CommitWatcher(Job.from_file(job_file).open_store(create=True))
    with start() as run:
        while not run.has_ended and not watcher.pending():
            run.wait(0.002)
        had_ended = run.has_ended
        run.kill()
    return not had_ended


def run_of(job_file: Path, name: str, command: str = "run") -> RunProcess:
    """Starts a command on a job; what it says is beside the job file, by this name."""
    out = job_file.parent / name
    return RunProcess([command, str(job_file), "--json"], out.with_suffix(".out"), out.with_suffix(".err"))
