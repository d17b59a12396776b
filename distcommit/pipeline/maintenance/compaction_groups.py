"""Choice of files to merge: with equal folder, branch, format, columns and incarnation, and increasing offsets, so that
records stay in source order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from distcommit.pipeline.maintenance.published_files import LiveFile
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import parsed

_MOST_FILES = 1000  # of a merged file, so that the plan of its work unit stays small

_Ranges = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """Rule for which files are merged.

    Attributes:
        target_file_bytes: largest size of a merged file. A file of half the target size of its branch, or more, is
            left.
        min_files: least number of files that a merged file replaces; two are enough if the target size is reached.
        closed_before_ms: time in milliseconds since 1970. Files that end later are left. A file in a time folder ends
            with the folder's period, other files with their modification.
    """

    target_file_bytes: int
    min_files: int
    closed_before_ms: int

    def admits(self, size_bytes: int, end_ms: int, target_file_bytes: int) -> bool:
        return size_bytes * 2 < min(self.target_file_bytes, target_file_bytes) and end_ms <= self.closed_before_ms

    def has_enough(self, sizes: Sequence[int], target_file_bytes: int) -> bool:
        if sum(sizes) > min(self.target_file_bytes, target_file_bytes):
            return True
        return len(sizes) >= max(2, self.min_files)


@dataclass(slots=True)
class _Group:
    files: list[LiveFile] = field(default_factory=list)
    size_bytes: int = 0
    is_full: bool = False
    ends: dict[str, int] = field(default_factory=dict)

    def continues_with(self, ranges: _Ranges) -> bool:
        return all(low >= self.ends.get(partition, low) for partition, (low, _) in ranges.items())

    def add(self, file: LiveFile, ranges: _Ranges) -> None:
        self.files.append(file)
        self.size_bytes += file.size_bytes
        self.ends |= {partition: high for partition, (_, high) in ranges.items()}


def compaction_groups(
    files: Sequence[LiveFile],
    policy: CompactionPolicy,
    target_file_bytes: Callable[[str], int],
    key_of: Callable[[LiveFile], Hashable | None],
) -> list[list[LiveFile]]:
    """Return groups of files that are merged into one file each, in the order of their records.

    Args:
        files: live data files of the dataset.
        target_file_bytes: returns the largest size of a merged file of a branch.
        key_of: returns what files of a group must have in common, besides their footers' fields; None for a file that
            is left.
    """
    groups: dict[Hashable, list[_Group]] = {}
    small = [
        file for file in files if policy.admits(file.size_bytes, file.end_ms, target_file_bytes(file.footer.branch))
    ]
    ordered = [(_ranges(file.footer), file) for file in small]
    for ranges, file in sorted(ordered, key=_position):
        footer = file.footer
        if not footer.content_sum or (key := key_of(file)) is None:
            continue  # without a sum, its records could not be compared
        folder = file.path.rpartition("/")[0]
        identity = (folder, footer.branch, footer.branches, footer.incarnation, footer.makes_several, footer.stripped)
        with_same_key = groups.setdefault((identity, key), [_Group()])
        group, most = with_same_key[-1], min(policy.target_file_bytes, target_file_bytes(footer.branch))
        group.is_full = group.size_bytes + file.size_bytes > most or len(group.files) == _MOST_FILES
        if group.is_full or not group.continues_with(ranges):
            group = _Group()
            with_same_key.append(group)
        group.add(file, ranges)
    return [
        group.files
        for with_same_key in groups.values()
        for group in with_same_key
        if len(group.files) >= (2 if group.is_full else max(2, policy.min_files))
    ]


def epochs_of(footer: Footer) -> tuple[int, ...]:
    """Return the epochs of a file and of the files that it replaced."""
    return (footer.epoch, *footer.replaces)


def _position(item: tuple[_Ranges, LiveFile]) -> tuple[int, list[tuple[str, tuple[int, int]]], str]:
    ranges, file = item
    return min(epochs_of(file.footer)), sorted(ranges.items())[:1], file.path


def _ranges(footer: Footer) -> _Ranges:
    offsets, ranges = parsed(footer.offsets), _Ranges()
    for partition in offsets.partitions():
        all_ranges: Iterable[tuple[int, int]] = list(offsets.ranges(partition))
        ranges[partition] = (min(low for low, _ in all_ranges), max(high for _, high in all_ranges))
    return ranges
