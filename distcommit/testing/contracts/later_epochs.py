"""Contract of sinks after a dataset's first commit: later epochs, and other branches.

A suite beside `contracts.sink`: `class TestMySink(SinkContract, LaterEpochs)`.
"""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, Committed, FailedForGood, RetryLater
from distcommit.testing.contracts.killed_processes import SHARED, commit_all, fork_server
from distcommit.testing.contracts.sink_under_test import SinkUnderTest

_MANY = 8
_LINES = 2
"""Number of lines at which a commit is killed, and at which it fails."""
_SEEN = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]


class LaterEpochs(SinkUnderTest):
    """The target has a ledger row of the dataset already. The first epoch of one branch is the easiest case."""

    def test_later_epoch_killed_or_failed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """At some of the lines that a commit executes, in the committer's folder and in the shared folders."""
        whole = tmp_path / "whole"
        requests = self._later(whole)
        places = [*self.committers_folders(whole), *SHARED]
        chosen = random.Random(f"{type(self).__name__} later")
        with fork_server(self.preloaded) as processes:
            lines = processes.lines_of(places, commit_all, self.sink(whole), self.context(whole), requests)
            assert self.seen(whole) == _SEEN
            for harm in (processes.killed_at, processes.failed_at):
                for line in sorted(chosen.sample(range(1, lines + 1), min(_LINES, lines))):
                    place = tmp_path / f"{harm.__name__}-{line}"
                    requests = self._later(place)
                    harm(line, places, commit_all, self.sink(place), self.context(place), requests)
                    assert len(set(self.seen(place))) == len(self.seen(place)), (harm.__name__, line)
                    again = self.commit(place, *requests)
                    assert all(isinstance(each, Committed | AlreadyCommitted) for each in again), (line, again)
                    assert self.seen(place) == _SEEN, (harm.__name__, line)
                    shutil.rmtree(place)

    def _later(self, place: Path) -> tuple[CommitRequest, ...]:
        """Return the requests of the second epoch of two datasets whose first epoch is committed."""
        place.mkdir(parents=True)
        first = [self.prepare(place, urn, 1, [0], bases=(0,)) for urn in ("a", "b")]
        assert self.commit(place, *first) == [Committed()] * 2
        return tuple(self.prepare(place, urn, 2, [1], [2], bases=(1,)) for urn in ("a", "b"))

    def test_later_epoch_committed_concurrently_is_committed_once(self, tmp_path: Path) -> None:
        place = tmp_path / "raced"
        requests = self._later(place)
        with ThreadPoolExecutor(_MANY) as pool:
            answers = list(pool.map(lambda _: self.commit(place, *requests), range(_MANY)))
        for outcomes in zip(*answers, strict=True):
            assert all(isinstance(outcome, Committed | AlreadyCommitted | RetryLater) for outcome in outcomes), outcomes
            assert outcomes.count(Committed()) <= 1
        self.commit(place, *requests)
        assert self.commit(place, *requests) == [AlreadyCommitted()] * 2
        assert self.seen(place) == _SEEN

    def test_branches_that_share_a_target_are_committed_independently(self, tmp_path: Path) -> None:
        """One branch has records, none, and records in three runs. Each request is repeated."""
        if not self.branches_share_a_target:
            self.report_not_applicable("branches never share a target")
            return
        seen: list[tuple[str, int]] = []
        for epoch, branches in ((1, {"main": 0, "other": 0}), (2, {"other": 1}), (3, {"main": 1, "other": 2})):
            for number, (branch, base) in enumerate(branches.items()):
                offset = 10 * epoch + number
                request = self.prepare(tmp_path, "a", epoch, [offset], bases=(base,), branch=branch)
                assert self.commit(tmp_path, request) == [Committed()], (epoch, branch)
                assert self.commit(tmp_path, request) == [AlreadyCommitted()], (epoch, branch)
                seen.append(("a", offset))
                assert self.seen(tmp_path) == seen
        if self.sink(tmp_path).abilities.audit:
            rows = {row.branch: (row.epoch, row.base) for row in self.ledger_rows(tmp_path)}
            assert rows == {"main": (3, 1), "other": (3, 2)}

    def test_branch_rolled_back_leaves_the_other_branch_unchanged(self, tmp_path: Path) -> None:
        """Abandon a commit of each branch in turn, then commit both branches again."""
        if not self.branches_share_a_target:
            self.report_not_applicable("branches never share a target")
            return
        for branch, kept in (("other", "main"), ("main", "other")):
            place = tmp_path / branch
            taken, stays = (
                self.prepare(place, "a", 1, [number], branch=name) for number, name in enumerate((branch, kept))
            )
            assert self.commit(place, taken, stays) == [Committed()] * 2
            try:
                for _ in range(2):
                    self.abandon(place, taken)
            except ConflictError:
                assert self.seen(place) == [("a", 0), ("a", 1)], "a refused roll back changed the target"
                self.report_not_applicable("the sink refuses and changes nothing")
                return
            assert self.seen(place) == [("a", 1)], branch
            assert self.commit(place, stays) == [AlreadyCommitted()], branch
            assert isinstance(self.commit(place, taken)[0], FailedForGood), branch
            later = [
                self.prepare(place, "a", 2, [2 + number], branch=name) for number, name in enumerate((branch, kept))
            ]
            assert self.commit(place, *later) == [Committed()] * 2, branch
            assert self.seen(place) == [("a", 1), ("a", 2), ("a", 3)], branch

    def test_branch_allowed_again_leaves_the_other_branch_rolled_back(self, tmp_path: Path) -> None:
        """For a sink with `allow`."""
        if not self.branches_share_a_target:
            self.report_not_applicable("branches never share a target")
            return
        for branch, kept in (("other", "main"), ("main", "other")):
            place = tmp_path / branch
            allowed, stays = (self.prepare(place, "a", 1, [0], branch=name) for name in (branch, kept))
            try:
                self.withdraw(place, allowed, stays)
                self.allow(place, allowed)
            except (ConflictError, NotImplementedError):
                assert self.seen(place) == []
                self.report_not_applicable("the sink does not support it")
                return
            assert isinstance(self.commit(place, stays)[0], FailedForGood), branch
            assert self.commit(place, allowed) == [Committed()], branch
            assert self.seen(place) == [("a", 0)], branch
