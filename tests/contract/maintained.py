"""Sinks whose tables other programs maintain: a killed commit is replayed after the maintenance."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, Committed
from distcommit.sinks.base import idempotent_commit
from distcommit.sinks.table_formats import committer
from distcommit.testing.contracts.killed_processes import commit_all, fork_server
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest

_SEEN = [(urn, offset) for urn in ("a", "b") for offset in (0, 1, 2)]


class ReplayAfterMaintenance(SinkUnderTest):
    """Tables that other programs compact and clean up between a kill and the replay."""

    @abstractmethod
    def maintain(self, place: Path, pending: Sequence[CommitRequest]) -> None:
        """Compact each table into one file, expire its older versions, and delete the files that it does not name.

        The data files of `pending` stay, as a clean-up keeps files of the last days.
        """

    def test_killed_commit_is_replayed_once_after_compaction_expiry_and_clean_up(self, tmp_path: Path) -> None:
        """The commit is killed before the tables' own commit, and after it."""
        whole = tmp_path / "whole"
        whole.mkdir()
        places = [
            *self.committers_folders(whole),
            *map(os.path.dirname, (idempotent_commit.__file__, committer.__file__)),
        ]
        with fork_server(self.preloaded) as processes:
            lines = processes.lines_of(places, commit_all, self.sink(whole), self.context(whole), self._to_kill(whole))
            was_committed = list[bool]()
            for line in (lines // 4, lines):
                place = tmp_path / str(line)
                requests = self._to_kill(place)
                assert processes.killed_at(line, places, commit_all, self.sink(place), self.context(place), requests)
                was_committed.append(self.visible_records(place) == _SEEN)
                for pending in (requests, ()):
                    self.maintain(place, pending)
                    outcomes = self.commit(place, *requests)
                    assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in outcomes), (
                        line,
                        outcomes,
                    )
                    assert self.visible_records(place) == _SEEN, line
        assert was_committed == [False, True]

    def _to_kill(self, place: Path) -> Sequence[CommitRequest]:
        """Return the second epoch of two datasets whose first epoch is committed."""
        place.mkdir(exist_ok=True)
        first = [self.prepare(place, urn, 1, [0], bases=(0,)) for urn in ("a", "b")]
        assert self.commit(place, *first) == [Committed()] * 2
        return [self.prepare(place, urn, 2, [1], [2], bases=(1,)) for urn in ("a", "b")]
