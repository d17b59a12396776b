"""What is wrong around a store that its own records do not say: what quarantined sequences lack as things stand, and
folders that can't be written. Looks only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from distcommit.app.inspection.runs import RunsResult
from distcommit.app.inspection.stall_detection import still_runs
from distcommit.app.inspection.status import StatusResult, waiting
from distcommit.app.inspection.steps import StepRow, read_steps
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.constructs import Converter
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.records.freshness import NO_TARGETS, Freshness
from distcommit.protocol.paths.store import STORE_MARKER
from distcommit.stores.logs.fencing import is_other_staging, newer_runs, older_output
from distcommit.stores.state.job_store import JobStore

_Told = TypeVar("_Told")
NAMED = 20
"""Troubles of a kind that are told one by one, at most; of datasets with one reason together the first is looked at."""
_ROOM_BYTES = 1 << 20
"""With less than this free, nothing but names can be written."""


class Around(NamedTuple):
    """`lacking`: by quarantined dataset the first of its steps that is lost now. `closed`: folders that this user can't
    write, each with why. `now_ms`: this machine's time. `turned_away_fails`: whether the job file says that a work unit
    fails for a record that is turned away; `fails_for_fields`: its key that says so for a new field, if it does.
    `freshness`: targets of datasets.
    `newer`: what the output knows of runs, or of a rebuild, that the store does not; `older`: what the store knows of
    runs that the output does not; `elsewhere`: whether what is pending was staged in another folder. `still`: for how
    many seconds live runs have not moved, or have waited for their epoch, by their ids, where that is too long."""

    lacking: Mapping[str, StepRow] = {}
    closed: Sequence[str] = ()
    now_ms: int = 0
    turned_away_fails: bool = False
    fails_for_fields: str = ""
    freshness: Freshness = NO_TARGETS
    newer: str = ""
    older: str = ""
    elsewhere: bool = False
    still: Mapping[str, float] = {}


def look_around(folders: JobFolders, store: JobStore, status: StatusResult, runs: RunsResult, now_ms: int) -> Around:
    """What is there now, on a local file system also whether it can be written."""
    older = _told(older_output, store, "")
    elsewhere = not older and _told(is_other_staging, store, False)
    folders_used = ["store", *([] if elsewhere else ["staging"]), *([] if older else ["output"])]
    return Around(
        lacking=dict(_lacking(folders, store, status)),
        closed=tuple(_closed(store, folders_used)),
        now_ms=now_ms,
        turned_away_fails=folders.config.on_rejected == "fail",
        fails_for_fields=_fails_for_fields(folders.config.converters),
        freshness=folders.config.targets,
        newer=_told(newer_runs, store, ""),
        older=older,
        elsewhere=elsewhere,
        still=_told(partial(still_runs, runs=runs), store, {}),
    )


def _told(of: Callable[[JobStore], _Told], store: JobStore, otherwise: _Told) -> _Told:
    try:
        return of(store)
    except (DistcommitError, OSError):  # it is told elsewhere that the job log, or the output, can't be read
        return otherwise


def _lacking(folders: JobFolders, store: JobStore, status: StatusResult) -> Iterator[tuple[str, StepRow]]:
    quarantined = [rows[0].dataset for rows in waiting(status)[:NAMED] if rows[0].status == "quarantined"]
    if not quarantined:
        return
    roots, committers = store.roots, folders.config.task_flow().committers
    context = StepContext(store.fs, roots.staging, roots.output, committers, store.store_id)
    for dataset in quarantined:
        try:
            found = read_steps(store, context, dataset).sequences
        except (DistcommitError, OSError):  # it is told elsewhere that the store can't be read
            continue
        lost = next((step for sequence in found for step in sequence.steps if step.state == "LOST"), None)
        if lost is not None:
            yield dataset, lost


def _closed(store: JobStore, names: Sequence[str]) -> Iterator[str]:
    """Of these folders, if they are of this machine: those on a file system that is full or mounted read-only, and
    those that this user should be able to write, as the store is theirs, and can't."""
    if store.fs.scheme != "file":
        return
    roots, full = store.roots, set[int]()
    for name in names:
        path = getattr(roots, name)
        try:
            room, status = os.statvfs(path), os.stat(path)
            is_ours = os.stat(f"{roots.store}/{STORE_MARKER}").st_uid == os.geteuid()
        except OSError as error:
            yield f"paths.{name} can't be looked at: {error}"
            continue
        free = room.f_bavail * room.f_frsize
        if room.f_flag & os.ST_RDONLY:
            yield f"the file system of paths.{name} is mounted read-only at {path}: mount it writable"
        elif (free < _ROOM_BYTES or (room.f_files and not room.f_favail)) and status.st_dev not in full:
            full.add(status.st_dev)
            names = "" if free < _ROOM_BYTES else ", and no file can be added"
            yield f"the file system of paths.{name} is full: {free:,} bytes are free at {path}{names}: free some"
        elif is_ours and not os.access(path, os.W_OK | os.X_OK):
            yield f"paths.{name} can't be written: {path} has lost its permission for user {os.geteuid()}: give it back"


def _fails_for_fields(converters: Sequence[Converter]) -> str:
    for number, converter in enumerate(converters):
        if converter.refuses_fields_by:
            return f"converters.{number}.{converter.refuses_fields_by}"
    return ""
