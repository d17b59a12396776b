"""Contract of sinks for rolling back, before or after a commit; a part of `contracts.sink`."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, Committed, FailedForGood
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest


class RollBacks(SinkUnderTest):
    """Contract of rolling back: the request's records disappear, and it cannot be committed again unless it is allowed
    again. A sink may also refuse to roll back.
    """

    @pytest.mark.parametrize("committed", [False, True])
    def test_rolled_back_request_is_gone_and_cannot_be_committed(self, tmp_path: Path, committed: bool) -> None:
        older, request = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "a", 2, [1])
        later = self.prepare(tmp_path, "a", 3, [1])
        self.commit(tmp_path, older)
        if committed:
            self.commit(tmp_path, request)
        present = self.visible_records(tmp_path)
        try:
            for _ in range(2):
                self.abandon(tmp_path, request)
        except ConflictError:
            assert self.visible_records(tmp_path) == present, "a refused roll back changed the target"
            self.report_not_applicable("the sink refuses and changes nothing")
            return
        assert self.visible_records(tmp_path) == [("a", 0)]
        (outcome,) = self.commit(tmp_path, request)
        assert isinstance(outcome, FailedForGood)
        assert self.commit(tmp_path, older) == [AlreadyCommitted()]
        assert self.commit(tmp_path, later) == [Committed()], "the next run reads it again"
        self.commit(tmp_path, request)
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 1)]

    def test_rolled_back_before_commit_nothing_remains_at_the_target(self, tmp_path: Path) -> None:
        """Applies to sinks with `prepares_at_target`."""
        if not self.sink(tmp_path).prepares_at_target:
            self.report_not_applicable("its writers leave nothing at the target")
            return
        request = self.prepare(tmp_path, "a", 1, [0], [1])
        assert self.in_doubt(tmp_path) > 0
        for _ in range(2):
            self.abandon(tmp_path, request)
        assert self.in_doubt(tmp_path) == 0
        (outcome,) = self.commit(tmp_path, request)
        assert isinstance(outcome, FailedForGood)
        assert self.visible_records(tmp_path) == []

    def test_older_epochs_are_rejected_after_a_rebuild(self, tmp_path: Path) -> None:
        """A rebuild aborts older epochs without their commit infos, because they belong to a store that no longer
        exists.
        """
        older, late = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "a", 2, [1])
        later = self.prepare(tmp_path, "a", 5, [1])
        self.commit(tmp_path, older)
        try:
            for _ in range(2):
                self.abandon(tmp_path, CommitRequest("a", 4, ()))
        except ConflictError:
            assert self.visible_records(tmp_path) == [("a", 0)]
            return
        assert isinstance(self.commit(tmp_path, late)[0], FailedForGood)
        assert self.visible_records(tmp_path) == [("a", 0)], "the committed request stays"
        assert self.commit(tmp_path, later) == [Committed()]
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 1)]

    def test_rolled_back_request_can_be_allowed_again_without_older_ones(self, tmp_path: Path) -> None:
        """Applies to sinks with `allow`, which is called if another target of the dataset cannot be rolled back."""
        older, request = (self.prepare(tmp_path, "a", epoch, [epoch]) for epoch in (1, 2))
        try:
            self.abandon(tmp_path, older)
            self.withdraw(tmp_path, request)
            for _ in range(2):
                self.allow(tmp_path, request)
        except (ConflictError, NotImplementedError):
            assert self.visible_records(tmp_path) == []
            self.report_not_applicable("the sink does not support it")
            return
        assert self.visible_records(tmp_path) == []
        (outcome,) = self.commit(tmp_path, older)
        assert isinstance(outcome, FailedForGood), "the older request is abandoned for good"
        assert self.commit(tmp_path, request) == [Committed()]
        self.allow(tmp_path, request)
        assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.visible_records(tmp_path) == [("a", 2)]
