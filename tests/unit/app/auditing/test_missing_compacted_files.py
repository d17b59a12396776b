"""After compactions the audit still reports missing files that were not compacted."""

from __future__ import annotations

import pytest

from distcommit.app.auditing.files.missing_files import LoggedFiles, missing_files
from distcommit.protocol.paths.output import published_name, published_start, tombstone_path

MERGED_EPOCH = 5


def start(epoch: int) -> str:
    return published_start(epoch, "00000_000000", f"{epoch:032x}")


def path_of(epoch: int, folder: str = "a") -> str:
    return f"{folder}/{published_name(start(epoch), 1, '.parquet')}"


def stone(epoch: int, *, is_compaction: bool = True) -> str:
    return tombstone_path("a", epoch, "00000_000000", f"{epoch:032x}", is_compaction=is_compaction)


SMALL, MERGED, OTHER_FOLDER, REJECTED = (
    (path_of(1), path_of(2)),
    path_of(MERGED_EPOCH),
    path_of(3, "a/day=1"),
    path_of(3, "_rejected/a"),
)
"""Small files, the file that they were merged into (both deleted, with the tombstone), and files of no compaction."""


def logged(*more: str) -> LoggedFiles:
    paths = (*SMALL, MERGED, *more)
    files = {path: int(path.rpartition("/")[2].partition("-")[0]) for path in paths}
    return LoggedFiles(files=files, stones={stone(MERGED_EPOCH): MERGED_EPOCH})


def gone(logged_files: LoggedFiles, existing: set[str], superseded: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    merged = {MERGED: (1, 2)} if MERGED in existing else {}
    return [file.path for file in missing_files(logged_files, existing, superseded, merged)]


@pytest.mark.parametrize("path", [OTHER_FOLDER, REJECTED, path_of(4)], ids=["folder", "errors", "epoch"])
def test_missing_file_that_was_not_compacted_is_reported_after_a_compaction(path: str) -> None:
    assert gone(logged(), {MERGED}) == []
    assert gone(logged(path), {MERGED}) == [path]


def test_compacted_files_of_an_expired_merged_file_are_not_reported() -> None:
    assert gone(logged(OTHER_FOLDER), set(), {MERGED}) == [OTHER_FOLDER]


def test_missing_merged_file_is_reported() -> None:
    assert gone(logged(), set()) == [MERGED]


def test_files_that_were_merged_twice_are_not_reported() -> None:
    again, between = path_of(7), path_of(6)
    known = logged(again, between, path_of(4))
    known.stones[stone(7)] = 7
    merged = {again: (1, 2, MERGED_EPOCH, 6)}
    assert [file.path for file in missing_files(known, {again}, set(), merged)] == [path_of(4)]
