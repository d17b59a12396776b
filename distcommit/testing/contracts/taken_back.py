"""What a sink has to keep where what it committed, or was to commit, is taken back: part of `contracts.sink`."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, Committed, FailedForGood
from distcommit.testing.contracts.tried_sink import TriedSink


class TakenBack(TriedSink):
    """What is taken back is gone and stays so, unless it is allowed again; or the sink says that it can't."""

    @pytest.mark.parametrize("committed", [False, True])
    def test_taken_back_it_is_gone_and_can_not_come_back(self, tmp_path: Path, committed: bool) -> None:
        older, request = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "a", 2, [1])
        later = self.prepare(tmp_path, "a", 3, [1])
        self.commit(tmp_path, older)
        if committed:
            self.commit(tmp_path, request)
        present = self.seen(tmp_path)
        try:
            for _ in range(2):
                self.abandon(tmp_path, request)
        except ConflictError:
            assert self.seen(tmp_path) == present, "what can't be taken back is left alone"
            self.passes_over("it says that it can't, and changes nothing")
            return
        assert self.seen(tmp_path) == [("a", 0)]
        (outcome,) = self.commit(tmp_path, request)
        assert isinstance(outcome, FailedForGood)
        assert self.commit(tmp_path, older) == [AlreadyCommitted()]
        assert self.commit(tmp_path, later) == [Committed()], "the next run reads it again"
        self.commit(tmp_path, request)
        assert self.seen(tmp_path) == [("a", 0), ("a", 1)]

    def test_taken_back_before_it_was_committed_it_leaves_nothing_at_the_target(self, tmp_path: Path) -> None:
        """Of a sink with `discards`."""
        if not self.sink(tmp_path).discards:
            self.passes_over("its writers leave nothing at the target")
            return
        request = self.prepare(tmp_path, "a", 1, [0], [1])
        assert self.in_doubt(tmp_path) > 0
        for _ in range(2):
            self.abandon(tmp_path, request)
        assert self.in_doubt(tmp_path) == 0
        (outcome,) = self.commit(tmp_path, request)
        assert isinstance(outcome, FailedForGood)
        assert self.seen(tmp_path) == []

    def test_told_that_older_epochs_may_commit_nothing_it_refuses_them(self, tmp_path: Path) -> None:
        """As a rebuild tells it, which knows of no infos: whoever still tries has a store that is no more."""
        older, late = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "a", 2, [1])
        later = self.prepare(tmp_path, "a", 5, [1])
        self.commit(tmp_path, older)
        try:
            for _ in range(2):
                self.abandon(tmp_path, CommitRequest("a", 4, ()))
        except ConflictError:
            assert self.seen(tmp_path) == [("a", 0)]
            return
        assert isinstance(self.commit(tmp_path, late)[0], FailedForGood)
        assert self.seen(tmp_path) == [("a", 0)], "what was committed stays"
        assert self.commit(tmp_path, later) == [Committed()]
        assert self.seen(tmp_path) == [("a", 0), ("a", 1)]

    def test_what_was_taken_back_can_be_allowed_again_and_nothing_older(self, tmp_path: Path) -> None:
        """As it has to be where another target of the dataset can't take it back. Of a sink with `allow`."""
        older, request = (self.prepare(tmp_path, "a", epoch, [epoch]) for epoch in (1, 2))
        try:
            self.abandon(tmp_path, older)
            self.withdraw(tmp_path, request)
            for _ in range(2):
                self.allow(tmp_path, request)
        except (ConflictError, NotImplementedError):
            assert self.seen(tmp_path) == []
            self.passes_over("it can't")
            return
        assert self.seen(tmp_path) == []
        (outcome,) = self.commit(tmp_path, older)
        assert isinstance(outcome, FailedForGood), "that one was abandoned for good"
        assert self.commit(tmp_path, request) == [Committed()]
        self.allow(tmp_path, request)
        assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.seen(tmp_path) == [("a", 2)]
