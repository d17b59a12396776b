"""Files that a compaction may merge, by names, sizes and ages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from distcommit.pipeline.maintenance.published_files import DatedFiles
from distcommit.protocol.paths.output import attempt_named

_FEWEST_TO_FILL = 3
"""Least number of small files, each below half the target size, that can reach it together."""

Attempt: TypeAlias = tuple[str, str]
"""Start of an attempt's file names, and branch."""


class Candidates(NamedTuple):
    """The small files of a dataset that may be merged.

    Attributes:
        paths: paths below the output, in folders with enough small files.
        attempts: number of live files by attempt and branch.
    """

    paths: list[str]
    attempts: Counter[Attempt]


def find_candidates(
    published: DatedFiles, policy: CompactionPolicy, target_file_bytes: Callable[[str], int]
) -> Candidates:
    """Return small files of folders with enough of them.

    If no folder has enough files, nothing but names is read.

    Args:
        published: the dataset's published files.
        target_file_bytes: returns the largest size of a merged file of a branch.

    Raises:
        DistcommitError, OSError: if a folder, a tombstone or a file's size cannot be read.
    """
    fewest, listed = min(policy.min_files, _FEWEST_TO_FILL), published.listed()
    if not _in_crowded_folders(listed, fewest):
        return Candidates([], Counter())
    superseded = published.superseded_paths()
    live = [path for path in listed if path not in superseded]
    small: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for path in _in_crowded_folders(live, fewest):
        age = published.size_and_end_ms(path)
        if age is not None and policy.admits(*age, target_file_bytes(published.branch_of(path))):
            small.setdefault(_folder_and_ending(path), []).append((age[0], path))
    paths = [
        path
        for files in small.values()
        if policy.has_enough([size for size, _ in files], target_file_bytes(published.branch_of(files[0][1])))
        for _, path in files
    ]
    return Candidates(paths, Counter((attempt_named(path), published.branch_of(path)) for path in live if paths))


def _in_crowded_folders(paths: Iterable[str], fewest: int) -> list[str]:
    paths = list(paths)
    counts = Counter(map(_folder_and_ending, paths))
    return [path for path in paths if counts[_folder_and_ending(path)] >= fewest]


def _folder_and_ending(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name.partition(".")[2]
