"""The folder of job files that a service runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from distcommit.app.job_file.load_job_file import job_files_in
from distcommit.app.jobs.job import Job
from distcommit.app.scheduling.schedule import Plan
from distcommit.core.errors import ConfigurationError, error_text


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job file in the folder.

    Attributes:
        name: file name.
        content_hash: BLAKE2b hash of the content, with which a changed file is detected; empty if the file could not be
            read.
        job: the job; None if it cannot be served.
        plan: the schedule; None if the job cannot be served.
        problem: why the job cannot be served; empty if it can.
    """

    name: str
    content_hash: bytes
    job: Job | None = None
    plan: Plan | None = None
    problem: str = ""


def read_job_files(folder: Path, overrides: Sequence[str], current_files: Mapping[str, JobFile]) -> dict[str, JobFile]:
    """Return all job files by name. Unchanged files are taken from `current_files`.

    Args:
        folder: folder of the job files. Subfolders, and names that begin with a dot, are skipped.
        overrides: settings that override those of each file.
        current_files: result of the last call.

    Raises:
        ConfigurationError: if the folder can't be read.
    """
    paths = job_files_in(folder)
    job_files = {path.name: _read(path, overrides, current_files.get(path.name)) for path in paths}
    return _with_separate_stores(job_files, current_files)


def require_served(files: Mapping[str, JobFile], folder: Path) -> None:
    """Raise ConfigurationError with all problems, unless there is at least one job file and all can be served."""
    if not files:
        raise ConfigurationError(
            "the folder has no job file to serve",
            id="SERVED_JOBS_INVALID",
            path=folder,
            expected="files that end in .yaml or .yml, with a section schedule",
            todo="put the job files there",
        )
    problems = [f"{file.name}: {file.problem}" for file in files.values() if file.problem]
    if problems:
        raise ConfigurationError(
            "not all of the job files can be served; nothing was begun",
            id="SERVED_JOBS_INVALID",
            path=folder,
            found=" | ".join(problems),
            todo="correct each named job file, or move it out of the folder",
        )


def _read(path: Path, overrides: Sequence[str], file: JobFile | None) -> JobFile:
    try:
        content = blake2b(path.read_bytes()).digest()
        if file is not None and file.content_hash == content and not file.problem:
            return file
        job = Job.from_file(path, overrides)
        return JobFile(path.name, content, job, _plan(job))
    except OSError as error:
        return JobFile(path.name, b"", problem=f"it can't be read: {error}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a custom class raises, the other jobs go on
        text = error_text(error)
        return JobFile(path.name, content, problem=text)


def _plan(job: Job) -> Plan:
    config = job.config
    if config.schedule is None:
        raise ConfigurationError(
            "the job has no schedule",
            id="SERVED_JOBS_INVALID",
            expected="schedule: {cron: '*/5 * * * *'}, or {interval_s: 30}",
            todo="add the section schedule to the job file",
        )
    if config.tries_out:
        raise ConfigurationError(
            "a sink of type console is for previews, and not served", id="SERVED_JOBS_INVALID", todo="set the job's own"
        )
    if config.source.batch_column:
        raise ConfigurationError(
            f"a source of type {config.source.type} is fed by a streaming query",
            id="SERVED_JOBS_INVALID",
            todo="call Job.on_batch by its foreachBatch",
        )
    config.task_flow().check()
    longest_s = max((hook.timeout_s for hook in config.alerts.hooks), default=0)
    return config.schedule.plan(config.targets.smallest_s, longest_s)


def _with_separate_stores(files: Mapping[str, JobFile], job_files: Mapping[str, JobFile]) -> dict[str, JobFile]:
    """Reject job files that share a store with another one. The file that is already served stays."""
    stores: dict[str, str] = {}
    served: dict[str, JobFile] = {}
    was_served = {name for name, file in job_files.items() if file.plan is not None}
    for name, file in sorted(files.items(), key=lambda item: (item[0] not in was_served, item[0])):
        served[name] = file
        if file.job is None:
            continue
        store = file.job.config.paths.store
        other = stores.setdefault(store, name)
        if other != name:
            problem = f"it is of the same job as {other}: both have the store {store}"
            served[name] = replace(file, job=None, plan=None, problem=problem)
    return dict(sorted(served.items()))
