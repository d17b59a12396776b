"""Planner of one dataset, whose new files go into consecutive work units.

The position in the partition `files`, which all work units share, records which files are read. The number of rows is
unknown before reading, so each work unit also has a partition of its own, `0` to `15`, whose position counts its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from distcommit.core.errors import printable
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.files.progress import (
    FilesWatermark,
    ListedFile,
    Progress,
    SkippedFilesWatermark,
    UnreadFiles,
)

logger = logging.getLogger(__name__)

FILES = "files"
"""Partition whose position records the read files."""
LISTED = "files"
"""Work unit property: files to read, as JSON."""
WATERMARKS = FilesWatermark()
SKIPPED = "skipped-"
"""Prefix of work units' partitions whose positions name skipped unreadable files."""
SKIPPED_WATERMARKS = SkippedFilesWatermark()
ROW_PARTITIONS = 16
"""Maximum number of work units of a dataset in a run."""
_MOST_FILES = 20_000
"""Maximum number of files of a dataset in a run."""
_OPENING_BYTES = 256 << 10
"""Cost of opening a file, in bytes that could be read meanwhile."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the source for planning.

    Attributes:
        bytes_per_work_unit: target size of work units in bytes.
        bytes_per_dataset: bytes of a dataset that one run reads; 0 for all.
        settled_ns: nanoseconds since 1970. Files that were changed later wait for the next run.
        remembered: the number of files that a watermark names individually.
        late: action for a file that is older than the newest one read: `read` reads it, `fail` fails its dataset.
        changed: action for a tracked file that was changed after it was read: `fail` fails its dataset, `read_again`
            reads it again.
        may_skip: whether unreadable files are skipped or diverted.
    """

    bytes_per_work_unit: int
    bytes_per_dataset: int
    settled_ns: int
    remembered: int
    late: Literal["read", "fail"]
    changed: Literal["fail", "read_again"]
    may_skip: bool = False


def plan_dataset(
    urn: str,
    stored: Watermark | None,
    files: Iterable[ListedFile],
    rules: Rules,
    retried_end: Watermark | None = None,
) -> DatasetPlan | DatasetProblem | None:
    """Return a dataset's plan, None if it has nothing to read, or a problem that excludes it from the run.

    Args:
        retried_end: end of a range that failed earlier. The plan ends with its newest existing file, if any.
    """
    files = list(files)
    if wrong := next((file.path for file in files if not _is_text(file.path)), ""):
        return DatasetProblem(urn, f"the name of a file is not valid Unicode: {wrong!r}. Rename or remove the file")
    positions = stored.positions if stored is not None else {}
    try:
        progress = WATERMARKS.from_position(positions[FILES]) if positions else Progress()
        skipped = [
            entry
            for partition, position in positions.items()
            if partition.startswith(SKIPPED)
            for entry in SKIPPED_WATERMARKS.from_position(position)[1]
        ]
    except KeyError:
        return DatasetProblem(urn, _NOT_KNOWN) if files else None
    except ValueError as error:
        return DatasetProblem(urn, f"its watermark can't be read: {error}")
    files_unread = progress.unread_files(files, skipped)
    if problem := _problem(progress, files_unread, rules):
        return DatasetProblem(urn, problem)
    chosen = _chosen(files_unread, rules, retried_end)
    if not chosen:
        return None
    _warn_of(progress.files_read_under_another_name(chosen), urn)
    incarnation = stored.incarnation if stored is not None else ""
    at, units = progress, list[WorkUnit]()
    for number, run in enumerate(_runs(chosen, rules.bytes_per_work_unit)):
        end = at
        for file in run:
            end = end.after(file, rules.remembered)
        low = {FILES: WATERMARKS.to_position(at), str(number): positions.get(str(number), 0)}
        if rules.may_skip:
            own = f"{SKIPPED}{number}"
            low[own] = positions.get(own, SKIPPED_WATERMARKS.to_position((0, ())))
        high = {FILES: WATERMARKS.to_position(end)}
        size, listed = sum(map(_cost, run)), msgspec.json.encode(run).decode()
        units.append(
            WorkUnit("", urn, Watermark(low, incarnation), Watermark(high, incarnation), size, {LISTED: listed})
        )
        at = end
    begin = {partition: low for unit in units for partition, low in unit.low.positions.items() if partition != FILES}
    start = {FILES: WATERMARKS.to_position(Progress()), **begin}
    new = {partition: low for partition, low in start.items() if partition not in positions}
    return DatasetPlan(urn, stored, Watermark(new, incarnation), tuple(units))


def _warn_of(alike: Sequence[ListedFile], urn: str) -> None:
    if alike:
        logger.warning(
            "files of dataset %s have the time, size and etag of files that were read under other names: %s. If they"
            " were renamed or linked, their rows are published twice",
            printable(urn),
            printable(_names(alike)),
        )


_NOT_KNOWN = (
    "the watermark has no position `files`, so it is not known which of its files are read. A rebuild cannot restore"
    " this position. Set the watermark with it (distcommit dataset set-watermark; source-files.md has the form), or set"
    " it to null to read all files again"
)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(progress: Progress, files_unread: UnreadFiles, rules: Rules) -> str:
    if (
        progress.rows
        and files_unread.half is None
        and all(file.entry.name != progress.half for file in files_unread.changed)
    ):
        return (
            f"a partly read file is gone, of which {progress.rows} rows are published: {progress.path}. Restore it with"
            " its time, or set the watermark (distcommit dataset set-watermark)"
        )
    if files_unread.changed and rules.changed == "fail":
        return (
            f"files were changed after they were read: {_names(files_unread.changed)}. Restore them with their times;"
            " or set source.on_changed_file to read_again, which publishes all their rows a second time"
        )
    if files_unread.late and rules.late == "fail":
        return (
            f"unread files are older than files that were read: {_names(files_unread.late)}. To read them, set"
            " source.on_late_file to read"
        )
    return ""


def _names(files: Sequence[ListedFile]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(file.path for file in files[:_NAMED]) + more


def _chosen(files_unread: UnreadFiles, rules: Rules, retried_end: Watermark | None) -> list[ListedFile]:
    files = [files_unread.half] if files_unread.half is not None else []
    unread_files = [*files_unread.new, *files_unread.late, *files_unread.changed]
    files += sorted((file for file in unread_files if file.mtime_ns <= rules.settled_ns), key=lambda file: file.entry)
    if failed := _failed(retried_end):
        # Files in between, too: the progress after the last file may forget older ones, read or not.
        last = max((number for number, file in enumerate(files) if failed.names(file)), default=len(files))
        files = files[: last + 1]
    total, chosen = 0, list[ListedFile]()
    for file in files[:_MOST_FILES]:
        total += file.size_bytes
        if chosen and rules.bytes_per_dataset and total > rules.bytes_per_dataset:
            break
        chosen.append(file)
    return chosen


def _failed(retried_end: Watermark | None) -> Progress | None:
    try:
        return WATERMARKS.from_position(retried_end.positions[FILES]) if retried_end is not None else None
    except (KeyError, ValueError):
        return None


def _runs(files: Sequence[ListedFile], target_bytes: int) -> list[list[ListedFile]]:
    target_bytes = max(target_bytes, -(-sum(map(_cost, files)) // ROW_PARTITIONS))
    runs: list[list[ListedFile]] = [[]]
    filled = 0
    for file in files:
        if runs[-1] and filled + _cost(file) > target_bytes and len(runs) < ROW_PARTITIONS:
            runs.append([])
            filled = 0
        runs[-1].append(file)
        filled += _cost(file)
    return runs


def _cost(file: ListedFile) -> int:
    return file.size_bytes + _OPENING_BYTES
