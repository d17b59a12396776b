"""Checks the environment of a store: folders, lost steps of quarantined datasets, and stalled runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from distcommit.app.inspection.job_status import StatusResult, waiting
from distcommit.app.inspection.open_commit_steps import StepRow, read_steps
from distcommit.app.inspection.problems.stall_detection import stalled_runs
from distcommit.app.inspection.recorded_runs import RunsResult
from distcommit.app.inspection.rejected_records import MostlyRejected, mostly_rejected
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.constructs import Converter
from distcommit.core.records.freshness_targets import NO_TARGETS, Freshness
from distcommit.fs.separate_store import file_system_at
from distcommit.protocol.paths.store import STORE_MARKER
from distcommit.stores.logs.fencing import is_other_staging, newer_runs, older_output
from distcommit.stores.state.job_store import JobStore

_Answer = TypeVar("_Answer")
NAMED = 20
"""The most problems of a kind that are reported one by one."""
_ROOM_BYTES = 1 << 20


class EnvironmentFindings(NamedTuple):
    """The findings of the environment checks, with the time of the check and the settings that explain problems."""

    lost_steps: Mapping[str, StepRow] = {}
    """The first LOST step of a quarantined dataset, by dataset URN. One dataset is checked for
    each reason, and at most `NAMED` reasons.
    """
    unwritable_folders: Sequence[str] = ()
    """Descriptions of folders that can't be written, with the cause."""
    now_ms: int = 0
    """The time of the check (epoch milliseconds)."""
    rejection_fails: bool = False
    """Whether `on_rejected` is `fail`, so that a rejected record fails its work unit."""
    fails_for_fields: str = ""
    """Key of the setting that makes a new field fail its work unit; empty if new fields are accepted."""
    freshness: Freshness = NO_TARGETS
    """The freshness targets of the datasets."""
    newer: str = ""
    """Description of runs, or of a rebuild, with a marker in the output and no record in the store; empty if there are
    none.
    """
    older: str = ""
    """Description of runs with a record in the store and no marker in the output; empty if there are none."""
    staged_in_other_folder: bool = False
    """Whether the files of pending commits were staged in a folder other than the present one."""
    stalled_s: Mapping[str, float] = {}
    """Seconds without progress, or of waiting for an epoch, by the id of the stalled run."""
    mostly_rejected: Sequence[MostlyRejected] = ()
    """Datasets that rejected most records of their newest commit."""


def check_environment(
    folders: JobFolders, store: JobStore, status: StatusResult, runs: RunsResult, now_ms: int
) -> EnvironmentFindings:
    """Return the findings of all checks. A check that meets an unreadable log finds nothing."""
    older = _answer(older_output, store, "")
    elsewhere = not older and _answer(is_other_staging, store, False)
    folders_used = ["store", *([] if elsewhere else ["staging"]), *([] if older else ["output"])]
    return EnvironmentFindings(
        lost_steps=dict(_lacking(folders, store, status)),
        unwritable_folders=tuple(_closed(store, folders_used)),
        now_ms=now_ms,
        rejection_fails=folders.config.on_rejected == "fail",
        fails_for_fields=_fails_for_fields(folders.config.converters),
        freshness=folders.config.targets,
        newer=_answer(newer_runs, store, ""),
        older=older,
        staged_in_other_folder=elsewhere,
        stalled_s=_answer(partial(stalled_runs, runs=runs), store, {}),
        mostly_rejected=_answer(partial(mostly_rejected, runs=runs), store, []),
    )


def _answer(check: Callable[[JobStore], _Answer], store: JobStore, otherwise: _Answer) -> _Answer:
    try:
        return check(store)
    except (DistcommitError, OSError):  # FILE_UNREADABLE reports the job log, or the output
        return otherwise


def _lacking(folders: JobFolders, store: JobStore, status: StatusResult) -> Iterator[tuple[str, StepRow]]:
    quarantined = [rows[0].dataset for rows in waiting(status)[:NAMED] if rows[0].status == "quarantined"]
    if not quarantined:
        return
    roots, committers = store.roots, folders.config.task_flow().committers
    context = StepContext(store.fs, roots.staging, roots.output, committers, store.store_id)
    for dataset in quarantined:
        try:
            sequences = read_steps(store, context, dataset).sequences
        except (DistcommitError, OSError):  # FILE_UNREADABLE reports it
            continue
        lost_step = next((step for sequence in sequences for step in sequence.steps if step.state == "LOST"), None)
        if lost_step is not None:
            yield dataset, lost_step


def _closed(store: JobStore, names: Sequence[str]) -> Iterator[str]:
    """Yield the faults of local folders. Missing permissions count only for the owner of the store."""
    roots, full = store.roots, set[int]()
    is_store_local = file_system_at(store.fs, roots.store).scheme == "file"
    for name in names:
        path = getattr(roots, name)
        if file_system_at(store.fs, path).scheme != "file":
            continue
        try:
            room, status = os.statvfs(path), os.stat(path)
            is_owner = os.stat(f"{roots.store}/{STORE_MARKER}" if is_store_local else path).st_uid == os.geteuid()
        except OSError as error:
            yield f"paths.{name} cannot be inspected: {error}"
            continue
        free = room.f_bavail * room.f_frsize
        if room.f_flag & os.ST_RDONLY:
            yield f"the file system of paths.{name} is mounted read-only at {path}"
        elif (free < _ROOM_BYTES or (room.f_files and not room.f_favail)) and status.st_dev not in full:
            full.add(status.st_dev)
            inodes = "" if free < _ROOM_BYTES else ", and no inodes are free"
            yield f"the file system of paths.{name} is full: {free:,} bytes are free at {path}{inodes}"
        elif is_owner and not os.access(path, os.W_OK | os.X_OK):
            yield f"paths.{name} is not writable: user {os.geteuid()} has no write permission for {path}"


def _fails_for_fields(converters: Sequence[Converter]) -> str:
    for number, converter in enumerate(converters):
        if converter.unknown_field_setting:
            return f"converters.{number}.{converter.unknown_field_setting}"
    return ""
