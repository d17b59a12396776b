"""Names below the output root."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConfigurationError
from distcommit.core.work_units import MAIN_BRANCH, is_error_branch, rejecting_branch
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER, epoch_name
from distcommit.protocol.paths.staging import staged_name

REJECTED_FOLDER = "_rejected"
"""Folder of the output root for the error branches of all datasets. Readers treat names with a leading `_` as
hidden."""

LEDGERS = f"{OWNERSHIP_FOLDER}/ledgers"
"""Folder of the output root for ledgers of tables that do not contain their ledger."""

_MARK = re.compile(r"(\d{10,})-([a-z]+)")
_MAX_START_BYTES = 240  # leaves room for numbers and suffixes in the 255 bytes that file systems allow
_PUBLISHED = re.compile(r"\d{10,}-\d{5,}_\d{6,}-[0-9a-f]{32}-\d{4,}\.[a-z]+(\.[a-z]+)?")
_TOMBSTONE_SUFFIX = ".tombstone"
_COMPACTION_SUFFIX = f".compaction{_TOMBSTONE_SUFFIX}"
_TOMBSTONE = re.compile(rf"_\d{{10,}}-\d{{5,}}_\d{{6,}}-[0-9a-f]{{32}}(\.compaction)?{re.escape(_TOMBSTONE_SUFFIX)}")


def run_marker_name(epoch: int, mark: str) -> str:
    return f"{epoch_name(epoch)}-{mark}"


def run_marker_of(name: str) -> tuple[int, str] | None:
    match = _MARK.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def published_folder(dataset_urn: str, branch: str = MAIN_BRANCH) -> str:
    """Return a branch's folder, relative to the output root, in the folder of the dataset."""
    parts = [REJECTED_FOLDER, folder_of(dataset_urn)] if is_error_branch(branch) else [folder_of(dataset_urn)]
    named = rejecting_branch(branch) if is_error_branch(branch) else branch
    return "/".join(parts if named in ("", MAIN_BRANCH) else [*parts, named])


def published_start(epoch: int, work_unit_id: str, attempt: str) -> str:
    """Return the unique start of an attempt's published names.

    The work unit's part contains no `-`.

    Raises:
        ConfigurationError: if the name is too long.
    """
    work_unit = quote(work_unit_id, safe="=@").replace("-", "%2D")
    start = f"{epoch_name(epoch)}-{work_unit}-{quote(attempt, safe='=@')}"
    if len(start) <= _MAX_START_BYTES:
        return start
    raise ConfigurationError(
        "a work unit's id is too long for a file name",
        expected=f"at most {_MAX_START_BYTES} bytes",
        found=f"{len(start)} bytes: {start[:80]}...",
        todo="shorten the work unit ids that the source plans",
    )


def published_name(start: str, number: int, ending: str) -> str:
    return f"{start}-{staged_name(number, ending)}"


def attempt_named(path: str) -> str:
    """Return the start of a published name, which identifies epoch, work unit and attempt."""
    return path.rpartition("/")[2].rpartition("-")[0]


def is_published_name(name: str) -> bool:
    return _PUBLISHED.fullmatch(name) is not None


def published_epoch(name: str) -> int:
    return int(name.removeprefix("_").partition("-")[0])


def tombstone_path(
    dataset_folder: str, epoch: int, work_unit_id: str, attempt: str, *, is_compaction: bool = False
) -> str:
    """Return a tombstone's path below the output. It is beside error files, whose readers skip tombstones.

    The name shows whether it is of a compaction, because an audit knows only the names of deleted tombstones.
    """
    suffix = _COMPACTION_SUFFIX if is_compaction else _TOMBSTONE_SUFFIX
    return f"{REJECTED_FOLDER}/{dataset_folder}/_{epoch_name(epoch)}-{work_unit_id}-{attempt}{suffix}"


def tombstones_among(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.endswith(_TOMBSTONE_SUFFIX) and is_tombstone(path)]


def is_tombstone(path: str) -> bool:
    return path.endswith(_TOMBSTONE_SUFFIX) and _TOMBSTONE.fullmatch(path.rpartition("/")[2]) is not None


def is_compaction_tombstone(path: str) -> bool:
    return path.endswith(_COMPACTION_SUFFIX) and is_tombstone(path)
