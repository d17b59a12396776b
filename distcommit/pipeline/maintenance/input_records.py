"""What is to be known of the input records of files that go: so that nobody looks for them any more."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords

_Key = tuple[str, tuple[str, ...], bool]


class KnownRecords:
    """Input records of which retired files say what became of them, by the incarnation and the branches that they count
    in, and by whether retention has taken the files."""

    def __init__(self) -> None:
        self._sets: dict[_Key, dict[str, OffsetSets]] = {}

    def add(self, footer: Footer, *, retained: bool) -> None:
        """Adds those of a file."""
        offsets, holes = parsed(footer.offsets), parsed(footer.holes)
        branches = [footer.branch] if footer.branch else footer.branches
        key = footer.incarnation, footer.branches, retained
        self._update(key, branches, offsets)
        self._update(key, footer.branches, holes)
        for branch, text in footer.filtered.items():
            self._update(key, [branch], parsed(text))

    def keep(self, replaced: Iterable[ReplacedRecords]) -> None:
        """Adds those that a tombstone says, which goes itself."""
        for each in replaced:
            for branch, text in each.offsets.items():
                self._update((each.incarnation, each.branches, each.retained), [branch], parsed(text))

    def to_records(self) -> list[ReplacedRecords]:
        """All of them, as a tombstone says them."""
        return [
            ReplacedRecords(
                incarnation, branches, {branch: found.to_text() for branch, found in sorted(sets.items())}, retained
            )
            for (incarnation, branches, retained), sets in self._sets.items()
        ]

    def _update(self, key: _Key, branches: Iterable[str], offsets: OffsetSets) -> None:
        sets = self._sets.setdefault(key, {})
        for branch in branches if offsets.count() else ():
            sets.setdefault(branch, OffsetSets()).update(offsets)
