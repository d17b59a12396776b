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
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest

_MANY = 8
_LINES = 2
"""Number of lines at which a commit is killed, and at which it fails."""
_SEEN = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]


class LaterEpochs(SinkUnderTest):
    """Contract of commits after a dataset's first one: the target already has a ledger row of the dataset."""

    def test_later_epoch_killed_or_failed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """The committer is killed or fails at some of the lines that a commit executes, in the committer's folder and
        in the shared folders.
        """
        complete = tmp_path / "whole"
        requests = self._later(complete)
        locations = [*self.committers_folders(complete), *SHARED]
        chosen = random.Random(f"{type(self).__name__} later")
        with fork_server(self.preloaded) as processes:
            lines = processes.lines_of(locations, commit_all, self.sink(complete), self.context(complete), requests)
            assert self.visible_records(complete) == _SEEN
            for harm in (processes.killed_at, processes.failed_at):
                for line in sorted(chosen.sample(range(1, lines + 1), min(_LINES, lines))):
                    folder = tmp_path / f"{harm.__name__}-{line}"
                    requests = self._later(folder)
                    harm(line, locations, commit_all, self.sink(folder), self.context(folder), requests)
                    assert len(set(self.visible_records(folder))) == len(self.visible_records(folder)), (
                        harm.__name__,
                        line,
                    )
                    again = self.commit(folder, *requests)
                    assert all(isinstance(committed, Committed | AlreadyCommitted) for committed in again), (
                        line,
                        again,
                    )
                    assert self.visible_records(folder) == _SEEN, (harm.__name__, line)
                    shutil.rmtree(folder)

    def _later(self, folder: Path) -> tuple[CommitRequest, ...]:
        """Return the requests of the second epoch of two datasets whose first epoch is committed."""
        folder.mkdir(parents=True)
        first = [self.prepare(folder, urn, 1, [0], bases=(0,)) for urn in ("a", "b")]
        assert self.commit(folder, *first) == [Committed()] * 2
        return tuple(self.prepare(folder, urn, 2, [1], [2], bases=(1,)) for urn in ("a", "b"))

    def test_later_epoch_committed_concurrently_is_committed_once(self, tmp_path: Path) -> None:
        folder = tmp_path / "raced"
        requests = self._later(folder)
        with ThreadPoolExecutor(_MANY) as pool:
            answers = list(pool.map(lambda _: self.commit(folder, *requests), range(_MANY)))
        for outcomes in zip(*answers, strict=True):
            assert all(isinstance(outcome, Committed | AlreadyCommitted | RetryLater) for outcome in outcomes), outcomes
            assert outcomes.count(Committed()) <= 1
        self.commit(folder, *requests)
        assert self.commit(folder, *requests) == [AlreadyCommitted()] * 2
        assert self.visible_records(folder) == _SEEN

    def test_branches_that_share_a_target_are_committed_independently(self, tmp_path: Path) -> None:
        """In three runs, one branch has records, then none, then records. Each request is repeated."""
        if not self.branches_share_a_target:
            self.report_not_applicable("branches never share a target")
            return
        observed: list[tuple[str, int]] = []
        for epoch, branches in ((1, {"main": 0, "other": 0}), (2, {"other": 1}), (3, {"main": 1, "other": 2})):
            for number, (branch, base) in enumerate(branches.items()):
                offset = 10 * epoch + number
                request = self.prepare(tmp_path, "a", epoch, [offset], bases=(base,), branch=branch)
                assert self.commit(tmp_path, request) == [Committed()], (epoch, branch)
                assert self.commit(tmp_path, request) == [AlreadyCommitted()], (epoch, branch)
                observed.append(("a", offset))
                assert self.visible_records(tmp_path) == observed
        if self.sink(tmp_path).abilities.audit:
            rows = {row.branch: (row.epoch, row.base) for row in self.ledger_rows(tmp_path)}
            assert rows == {"main": (3, 1), "other": (3, 2)}

    def test_branch_rolled_back_leaves_the_other_branch_unchanged(self, tmp_path: Path) -> None:
        """Abandon a commit of each branch in turn, then commit both branches again."""
        if not self.branches_share_a_target:
            self.report_not_applicable("branches never share a target")
            return
        for branch, stored in (("other", "main"), ("main", "other")):
            folder = tmp_path / branch
            selected, stays = (
                self.prepare(folder, "a", 1, [number], branch=name) for number, name in enumerate((branch, stored))
            )
            assert self.commit(folder, selected, stays) == [Committed()] * 2
            try:
                for _ in range(2):
                    self.abandon(folder, selected)
            except ConflictError:
                assert self.visible_records(folder) == [("a", 0), ("a", 1)], "a refused roll back changed the target"
                self.report_not_applicable("the sink refuses and changes nothing")
                return
            assert self.visible_records(folder) == [("a", 1)], branch
            assert self.commit(folder, stays) == [AlreadyCommitted()], branch
            assert isinstance(self.commit(folder, selected)[0], FailedForGood), branch
            later = [
                self.prepare(folder, "a", 2, [2 + number], branch=name) for number, name in enumerate((branch, stored))
            ]
            assert self.commit(folder, *later) == [Committed()] * 2, branch
            assert self.visible_records(folder) == [("a", 1), ("a", 2), ("a", 3)], branch

    def test_branch_allowed_again_leaves_the_other_branch_rolled_back(self, tmp_path: Path) -> None:
        """Applies to sinks with `allow`."""
        if not self.branches_share_a_target:
            self.report_not_applicable("branches never share a target")
            return
        for branch, stored in (("other", "main"), ("main", "other")):
            folder = tmp_path / branch
            allowed, stays = (self.prepare(folder, "a", 1, [0], branch=name) for name in (branch, stored))
            try:
                self.withdraw(folder, allowed, stays)
                self.allow(folder, allowed)
            except (ConflictError, NotImplementedError):
                assert self.visible_records(folder) == []
                self.report_not_applicable("the sink does not support it")
                return
            assert isinstance(self.commit(folder, stays)[0], FailedForGood), branch
            assert self.commit(folder, allowed) == [Committed()], branch
            assert self.visible_records(folder) == [("a", 0)], branch
