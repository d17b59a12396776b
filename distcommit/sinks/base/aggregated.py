"""Base class of committers whose target takes the requests of many datasets in one commit."""

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
    """Combines requests to what one commit of the target takes, and has it committed; one that is refused is found by
    halves, and holds up no other.

    What is combined is not stored: the commit log has the requests, and a replay combines them anew, perhaps with
    others. So it may be any value, and what the design calls restoring an aggregated commit is to combine it again.
    """

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        together: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            together.setdefault(self.committed_with(request), []).append(index)
        outcomes: dict[int, CommitOutcome] = {}
        for indices in together.values():
            found = self._by_halves([requests[index] for index in indices])
            outcomes.update(zip(indices, found, strict=True))
        return [outcomes[index] for index in range(len(requests))]

    def commit_whole(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """All of them in one commit, or none. Which one `combine` refuses is found one by one; of those that only the
        commit refuses together nobody knows which it is, and all have failed."""
        refusals = [self._refusal(request) for request in requests]
        refused = next((r.dataset_urn for r, why in zip(requests, refusals, strict=True) if why is not None), None)
        if refused is not None:
            return [why or HeldBack(refused) for why in refusals]
        try:
            return self.commit_aggregated(self.combine(requests))
        except RefusedError as error:
            return [FailedForGood(f"one of {len(requests)} that are committed all or none: {error}")] * len(requests)

    def _refusal(self, request: CommitRequest) -> FailedForGood | None:
        try:
            self.combine([request])
        except RefusedError as error:
            return FailedForGood(str(error))
        return None

    def committed_with(self, request: CommitRequest) -> str:
        """Which requests go into one commit: those of the same text, such as their table. By default all do. A commit
        group of the sink has one text."""
        return ""

    @abstractmethod
    def combine(self, requests: Sequence[CommitRequest]) -> Aggregated:
        """What one commit is to hold; changes nothing at the target. Some of them may be committed already, and their
        staged files be gone.

        Raises:
            RefusedError: if one of them can never be committed.
        """

    @abstractmethod
    def commit_aggregated(self, aggregated: Aggregated) -> Sequence[CommitOutcome]:
        """Commits all of it that is not committed yet, in one transaction with its ledger rows, durably.

        Returns:
            an outcome for each request, in the order in which they were combined.

        Raises:
            RefusedError: if one of them can never be committed. Nothing was changed then, and each half of them is
                combined and tried by itself. What else it raises is raised by `commit`.
        """

    def _by_halves(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        try:
            return self.commit_aggregated(self.combine(requests))
        except RefusedError as error:
            if len(requests) == 1:
                return [FailedForGood(str(error))]
        half = len(requests) // 2
        return [*self._by_halves(requests[:half]), *self._by_halves(requests[half:])]
