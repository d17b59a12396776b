"""Contract of sinks whose committers change commit infos after a partial success; a part of `contracts.sink`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    FailedForGood,
    RetryLater,
    check_plain,
)
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest

_CALLS = 100
"""Maximum number of calls that a partial commit may need."""


class ChangedInfos(SinkUnderTest):
    """Contract of `RetryLater` with infos: a commit may be continued with the changed infos, or with older ones."""

    @pytest.mark.parametrize("continued", ["with changed infos", "with older infos", "with both in turn"])
    def test_partial_commit_is_finished_once_with_older_and_changed_infos(self, tmp_path: Path, continued: str) -> None:
        """Applies to sinks whose committer changes infos (`commit_in_part`)."""
        request = self.prepare(tmp_path, "a", 1, [0, 1], [2])
        if not self.commit_in_part(tmp_path, request):
            self.report_not_applicable("its committer never changes infos")
            return
        (outcome,) = self.commit(tmp_path, request)
        assert isinstance(outcome, RetryLater), outcome
        newest = self.changed(tmp_path, request, outcome)
        assert newest != request
        for call in range(_CALLS):
            is_older = continued == "with older infos" or (continued == "with both in turn" and call % 2 == 0)
            (answer,) = self.commit(tmp_path, request if is_older else newest)
            if not isinstance(answer, RetryLater):
                break
            newest = self.changed(tmp_path, request if is_older else newest, answer)
        assert answer == Committed()
        for late in (request, newest, request):
            assert self.commit(tmp_path, late) == [AlreadyCommitted()]
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 1), ("a", 2)]

    def test_partial_commit_is_rolled_back_with_older_infos(self, tmp_path: Path) -> None:
        """Applies to sinks whose committer changes infos. The process may have died before it recorded the change."""
        request = self.prepare(tmp_path, "a", 1, [0, 1], [2])
        if not self.commit_in_part(tmp_path, request):
            self.report_not_applicable("its committer never changes infos")
            return
        (outcome,) = self.commit(tmp_path, request)
        assert isinstance(outcome, RetryLater), outcome
        newest, present = self.changed(tmp_path, request, outcome), self.visible_records(tmp_path)
        try:
            for _ in range(2):
                self.abandon(tmp_path, request)
        except ConflictError:
            assert self.visible_records(tmp_path) == present, "a refused roll back changed the target"
            self.report_not_applicable("the sink refuses and changes nothing")
            return
        assert self.visible_records(tmp_path) == []
        for late in (newest, request):
            (outcome,) = self.commit(tmp_path, late)
            assert isinstance(outcome, FailedForGood), outcome
        assert self.visible_records(tmp_path) == []

    def changed(self, location: Path, request: CommitRequest, outcome: RetryLater) -> CommitRequest:
        """Return the request as the next process reads it, after the change was recorded."""
        infos = list(request.infos if outcome.infos is None else outcome.infos)
        check_plain(infos)
        return self.stored(
            location, replace(request, infos=tuple(infos), infos_version=self.sink(location).infos_version)
        )
