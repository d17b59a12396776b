"""Input records of superseded files. A tombstone records them, so that audits do not report them as gaps."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords

_Key = tuple[str, tuple[str, ...], bool]


class SupersededRecords:
    """Sums up the offsets in superseded files by incarnation, list of branches, and whether the files expired."""

    def __init__(self) -> None:
        self._sets: dict[_Key, dict[str, OffsetSets]] = {}

    def add(self, footer: Footer, *, is_expired: bool) -> None:
        """Add the offsets in a file's footer. `is_expired`: the file is expired and not replaced."""
        offsets, holes = parsed(footer.offsets), parsed(footer.holes)
        branches = [footer.branch] if footer.branch else footer.branches
        key = footer.incarnation, footer.branches, is_expired
        self._update(key, branches, offsets)
        self._update(key, footer.branches, holes)
        for branch, text in footer.filtered.items():
            self._update(key, [branch], parsed(text))

    def add_tombstone(self, replaced: Iterable[ReplacedRecords]) -> None:
        """Add the offsets in a tombstone that is itself superseded."""
        for entry in replaced:
            for branch, text in entry.offsets.items():
                self._update((entry.incarnation, entry.branches, entry.is_expired), [branch], parsed(text))

    def to_records(self) -> list[ReplacedRecords]:
        """Return the collected records in the form that a tombstone stores."""
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
