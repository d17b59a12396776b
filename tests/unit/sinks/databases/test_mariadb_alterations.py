"""Tables of MariaDB that still need a statement after it was executed, without a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, FailedForGood, HeldBack, RetryLater
from distcommit.sinks.databases.server_committer import ServerCommitter
from distcommit.sinks.mariadb.committer import MariadbCommitter

REQUESTS = [CommitRequest("a", 1, ()), CommitRequest("b", 1, ())]
STATEMENT = "ALTER TABLE `t` ADD COLUMN `n` int"


@pytest.mark.parametrize("method", ["commit", "commit_atomically"])
def test_statement_that_has_no_effect_is_executed_once_and_its_dataset_fails(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = object.__new__(MariadbCommitter)
    committer._altered_first = {}
    executed = list[str]()

    def commit(self: MariadbCommitter, requests: Sequence[CommitRequest]) -> list[CommitOutcome]:
        if requests:
            self._altered_first = {("a", "main"): STATEMENT}
        return [RetryLater("the table must be altered first")] * len(requests)

    monkeypatch.setattr(ServerCommitter, method, commit)
    monkeypatch.setattr(MariadbCommitter, "_alter", lambda _, statement: executed.append(statement))
    first, second = getattr(committer, method)(REQUESTS)
    assert executed == [STATEMENT]
    assert isinstance(first, FailedForGood)
    assert "again after it was executed" in first.reason
    assert isinstance(second, HeldBack if method == "commit_atomically" else RetryLater)
