"""Which files a compaction merges, and in which order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy, compaction_groups
from distcommit.pipeline.maintenance.published_files import LiveFile
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets

POLICY = CompactionPolicy(target_file_bytes=1000, min_files=2, closed_before_ms=50)


def file(
    name: str, low: int = 0, high: int = 0, *, epoch: int = 1, size: int = 100, end_ms: int = 1, **footer: Any
) -> LiveFile:
    """Return a file with offsets [low, high) of partition 0."""
    offsets = OffsetSets()
    offsets.add_range("0", low, high)
    fields: dict[str, Any] = {"attempt": name, "content_sum": "1" * 16, "records": high - low, **footer}
    origin = Footer(
        dataset_urn="a", epoch=epoch, run_id="r", work_unit_id="w", offsets=offsets.to_text() if high else "", **fields
    )
    return LiveFile(name, origin, size, end_ms)


def groups(*files: LiveFile, policy: CompactionPolicy = POLICY, keys: dict[str, Hashable] | None = None) -> list[str]:
    found = compaction_groups(files, policy, lambda branch: 10_000, lambda file: (keys or {}).get(file.path, 0))
    return [" ".join(file.path for file in group) for group in found]


def test_files_are_merged_in_the_order_of_their_offsets() -> None:
    assert groups(file("c", 4, 6, epoch=3), file("a", 0, 2), file("b", 2, 4, epoch=2)) == ["a b c"]


def test_files_with_interleaved_offsets_are_not_merged() -> None:
    """A reprocessed record has an offset between those of an older file."""
    older, reprocessed = file("a", 0, 5), file("b", 2, 3, epoch=4, replaces=(1,))
    assert groups(older, reprocessed) == []
    assert groups(older, reprocessed, file("c", 5, 7, epoch=5)) == ["b c"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (file("x/a"), file("y/b")),
        (file("a"), file("b", branch="other")),
        (file("a"), file("b", branches=("main", "other"))),
        (file("a"), file("b", incarnation="recreated")),
        (file("a"), file("b", makes_several=True)),
        (file("a"), file("b", stripped=True)),
        (file("a"), file("b", content_sum="")),
        (file("a"), file("b", size=500)),
        (file("a"), file("b", end_ms=51)),
    ],
    ids=[
        *("folder", "branch", "branches", "incarnation", "makes several", "stripped", "no content sum", "large"),
        "not closed",
    ],
)
def test_files_that_differ_are_not_merged(first: LiveFile, second: LiveFile) -> None:
    assert groups(first, second) == []


def test_files_with_different_columns_are_not_merged() -> None:
    keys: dict[str, Hashable] = {"a": "old", "b": "new", "c": "old", "d": "new", "e": None}
    files = [file(name, number, number + 1) for number, name in enumerate("abcde")]
    assert groups(*files, keys=keys) == ["a c", "b d"]


def test_merged_file_is_at_most_as_large_as_the_target() -> None:
    files = [file(f"{number}", number, number + 1, size=400) for number in range(5)]
    assert groups(*files) == ["0 1", "2 3"]


def test_file_of_half_the_target_size_of_its_branch_stays() -> None:
    files = [file(f"{number}", number, number + 1, size=size) for number, size in enumerate((149, 150, 149, 149))]
    assert [
        [file.path for file in group] for group in compaction_groups(files, POLICY, lambda _: 300, lambda _: 0)
    ] == [["0", "2"]]


def test_few_files_are_merged_only_if_they_reach_the_target() -> None:
    policy = CompactionPolicy(target_file_bytes=1000, min_files=4, closed_before_ms=50)
    small = [file(f"{number}", number, number + 1) for number in range(3)]
    assert groups(*small, policy=policy) == []
    large = [file(f"{number}", number, number + 1, size=400) for number in range(3)]
    assert groups(*large, policy=policy) == ["0 1"]
