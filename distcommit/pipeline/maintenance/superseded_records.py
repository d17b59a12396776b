"""Input records of superseded files, so that audits do not report gaps."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords

_Key = tuple[str, tuple[str, ...], bool]


class SupersededRecords:
    """Offsets of superseded input records by incarnation, branches, and whether files expired."""

    def __init__(self) -> None:
        self._sets: dict[_Key, dict[str, OffsetSets]] = {}

    def add(self, footer: Footer, *, is_expired: bool) -> None:
        """Add a footer's offsets. `is_expired`: whether the file expired and was not replaced."""
        offsets, holes = parsed(footer.offsets), parsed(footer.holes)
        branches = [footer.branch] if footer.branch else footer.branches
        key = footer.incarnation, footer.branches, is_expired
        self._update(key, branches, offsets)
        self._update(key, footer.branches, holes)
        for branch, text in footer.filtered.items():
            self._update(key, [branch], parsed(text))

    def add_tombstone(self, replaced: Iterable[ReplacedRecords]) -> None:
        for entry in replaced:
            for branch, text in entry.offsets.items():
                self._update((entry.incarnation, entry.branches, entry.is_expired), [branch], parsed(text))

    def to_records(self) -> list[ReplacedRecords]:
        return [
            ReplacedRecords(
                incarnation,
                branches,
                {branch: offsets.to_text() for branch, offsets in sorted(sets.items())},
                is_expired,
            )
            for (incarnation, branches, is_expired), sets in self._sets.items()
        ]

    def _update(self, key: _Key, branches: Iterable[str], offsets: OffsetSets) -> None:
        sets = self._sets.setdefault(key, {})
        for branch in branches if offsets.count() else ():
            sets.setdefault(branch, OffsetSets()).update(offsets)
