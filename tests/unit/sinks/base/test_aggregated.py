"""Aggregated committers: combination of requests, and isolation of a rejected request from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    FailedForGood,
    HeldBack,
)
from distcommit.sinks.base.aggregated_committer import AggregatedCommitter
from distcommit.sinks.databases.table_committer import RefusedError


@dataclass
class Tables(AggregatedCommitter[list[CommitRequest]]):
    """Commits of a target that combines a table's requests; a `bad` dataset's request makes its combination fail."""

    bad: frozenset[str] = frozenset()
    refused_when: str = "committed"
    commits: list[list[str]] = field(default_factory=list)
    tries: int = 0
    known: set[str] = field(default_factory=set)

    def committed_with(self, request: CommitRequest) -> str:
        return request.dataset_urn.split(".")[0]

    def combine(self, requests: Sequence[CommitRequest]) -> list[CommitRequest]:
        if self.refused_when == "combined":
            self._refuse(requests)
        return list(requests)

    def commit_aggregated(self, aggregated: list[CommitRequest]) -> Sequence[CommitOutcome]:
        self.tries += 1
        self._refuse(aggregated)
        names = [request.dataset_urn for request in aggregated]
        self.commits.append(names)
        outcomes = [AlreadyCommitted() if name in self.known else Committed() for name in names]
        self.known.update(names)
        return outcomes

    def _refuse(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            if request.dataset_urn in self.bad:
                raise RefusedError(f"{request.dataset_urn} does not fit")


def requests(*urns: str) -> list[CommitRequest]:
    return [CommitRequest(urn, 7, ("info",)) for urn in urns]


def test_requests_of_one_table_are_one_commit_and_outcomes_keep_the_order_of_requests() -> None:
    tables = Tables(known={"b.1"})
    outcomes = tables.commit(requests("a.1", "b.1", "a.2", "b.2"))
    assert tables.commits == [["a.1", "a.2"], ["b.1", "b.2"]]
    assert outcomes == [Committed(), AlreadyCommitted(), Committed(), Committed()]


@pytest.mark.parametrize("refused_when", ["combined", "committed"])
@pytest.mark.parametrize("bad", range(64))
def test_rejected_request_is_found_by_bisection_and_the_others_are_committed(bad: int, refused_when: str) -> None:
    names = [f"a.{number}" for number in range(64)]
    tables = Tables(bad=frozenset({names[bad]}), refused_when=refused_when)
    outcomes = tables.commit(requests(*names))
    assert outcomes[bad] == FailedForGood(f"{names[bad]} does not fit")
    assert all(outcome == Committed() for index, outcome in enumerate(outcomes) if index != bad)
    assert len(tables.commits) == 6, "one commit for each bisection"
    assert tables.tries <= 13


def test_rejected_request_of_an_atomic_group_holds_back_the_others() -> None:
    tables = Tables(bad=frozenset({"a.2"}), refused_when="combined")
    outcomes = tables.commit_atomically(requests("a.1", "a.2", "a.3"))
    assert outcomes == [HeldBack("a.2"), FailedForGood("a.2 does not fit"), HeldBack("a.2")]
    assert tables.tries == 0
    assert tables.commit_atomically(requests("a.1", "a.3")) == [Committed(), Committed()]
    assert tables.commits == [["a.1", "a.3"]]


def test_atomic_group_rejected_by_the_commit_fails_all_its_requests() -> None:
    tables = Tables(bad=frozenset({"a.2"}))
    reason = FailedForGood("one of 3 requests that are committed together was refused: a.2 does not fit")
    assert tables.commit_atomically(requests("a.1", "a.2", "a.3")) == [reason] * 3
    assert (tables.tries, tables.commits) == (1, [])


def test_error_that_is_not_a_rejection_is_raised() -> None:
    class Down(Tables):
        def commit_aggregated(self, aggregated: list[CommitRequest]) -> Sequence[CommitOutcome]:
            raise ConnectionError("the target is down")

    with pytest.raises(ConnectionError):
        Down().commit(requests("a.1", "a.2"))
