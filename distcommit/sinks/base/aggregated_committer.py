"""Base class of committers that combine the requests of many datasets into one commit at the target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    FailedForGood,
    HeldBack,
    SinkCommitter,
)
from distcommit.sinks.databases.table_committer import RefusedError

Aggregated = TypeVar("Aggregated")


class AggregatedCommitter(SinkCommitter, Generic[Aggregated]):
    """Committer that combines requests with equal keys (`committed_with`) into one commit at the target. Bisection
    finds refused requests, and the others are committed."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        together: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            together.setdefault(self.committed_with(request), []).append(index)
        outcomes: dict[int, CommitOutcome] = {}
        for indices in together.values():
            answers = self._by_halves([requests[index] for index in indices])
            outcomes.update(zip(indices, answers, strict=True))
        return [outcomes[index] for index in range(len(requests))]

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Commit all requests in one commit or none.

        If `combine` refuses single requests, only these fail and the others are held back. Otherwise the cause of a
        refusal is unknown, and all fail.
        """
        refusals = [self._refusal(request) for request in requests]
        refused = next((r.dataset_urn for r, cause in zip(requests, refusals, strict=True) if cause is not None), None)
        if refused is not None:
            return [cause or HeldBack(refused) for cause in refusals]
        try:
            return self.commit_aggregated(self.combine(requests))
        except RefusedError as error:
            reason = f"one of {len(requests)} requests that are committed together was refused: {error}"
            return [FailedForGood(reason)] * len(requests)

    def _refusal(self, request: CommitRequest) -> FailedForGood | None:
        try:
            self.combine([request])
        except RefusedError as error:
            return FailedForGood(str(error))
        return None

    def committed_with(self, request: CommitRequest) -> str:
        """Return a key, such as the table's name. The requests of one commit group must have equal keys."""
        return ""

    @abstractmethod
    def combine(self, requests: Sequence[CommitRequest]) -> Aggregated:
        """Return the content of one commit, without changing the target. Some requests may be committed already, and
        their staged files deleted. Raises RefusedError if one of the requests can never be committed."""

    @abstractmethod
    def commit_aggregated(self, aggregated: Aggregated) -> Sequence[CommitOutcome]:
        """Commit durably all requests that are not committed yet, with their ledger rows, in one transaction. Return
        outcomes in the order of `combine`. Raises RefusedError, with the target unchanged, if one of the requests can
        never be committed."""

    def _by_halves(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        try:
            return self.commit_aggregated(self.combine(requests))
        except RefusedError as error:
            if len(requests) == 1:
                return [FailedForGood(str(error))]
        half = len(requests) // 2
        return [*self._by_halves(requests[:half]), *self._by_halves(requests[half:])]
