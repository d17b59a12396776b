"""Commit sequences and their store, after Apache Gobblin
(https://gobblin.apache.org/docs/miscellaneous/Exactly-Once-Support/)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from distcommit.core.errors import DistcommitError, LostError, add_ids
from distcommit.core.interfaces.commit_step import CommitStep
from distcommit.steps.step_execution import execute_sequences

Kind = TypeVar("Kind", bound=DistcommitError)


def _unchanged(error: Kind) -> Kind:
    return error


@dataclass(frozen=True, slots=True)
class CommitSequence:
    """All steps of one dataset, sealed together.

    Attributes:
        dataset_urn: the dataset.
        steps: the steps, in execution order.
        close: called once every step is done and durable; records in the store that the sequence is done.
        lose: called with the error of a lost step; records the error in the store, and returns the error to raise.
        fail: called with the error of any other failed step; records the error, and returns the error to raise.
    """

    dataset_urn: str
    steps: tuple[CommitStep, ...]
    close: Callable[[], None] = field(repr=False)
    lose: Callable[[LostError], LostError] = field(repr=False, default=_unchanged)
    fail: Callable[[DistcommitError], DistcommitError] = field(repr=False, default=_unchanged)

    def commit(self) -> bool:
        """Execute the remaining steps in order, make effects durable, and close the sequence. Idempotent.

        No step is executed after a failed one.

        Returns:
            True: the sequence is done.

        Raises:
            LostError: if a step's effect can be neither proven nor repeated.
            DistcommitError: from `fail` or `close`.
        """
        outcomes = execute_sequences({self.dataset_urn: self.steps}, verify_first=True)
        error, failed = outcomes.lost.get(self.dataset_urn), outcomes.failed.get(self.dataset_urn)
        if error is not None:
            add_ids(error, dataset=self.dataset_urn)
            raise self.lose(error) from error
        if failed is not None:
            add_ids(failed, dataset=self.dataset_urn)
            raise self.fail(failed) from failed
        self.close()
        return True


class CommitStepStore(ABC):
    """Storage of commit steps by store (the job) and dataset.

    Unsealed steps are never executed and need not survive the process. `seal` makes all steps of a dataset durable at
    once.
    """

    @abstractmethod
    def create(self, store: str, urn: str | None = None) -> bool:
        """Create the store of a job or, with `urn`, a dataset's list of steps. Return False if it exists."""

    @abstractmethod
    def exists(self, store: str, urn: str | None = None) -> bool:
        """Return whether the job exists or, with `urn`, whether the dataset has a sealed sequence that is not done."""

    @abstractmethod
    def remove(self, store: str, urn: str | None = None) -> bool:
        """Delete a dataset's unsealed steps, or a job without pending sequences. Return False if there was nothing to
        delete.

        Raises:
            ConflictError: if a sealed sequence is pending. It must be committed, not removed.
        """

    @abstractmethod
    def put(self, store: str, urn: str, step: CommitStep) -> bool:
        """Add an unsealed step. Raise ConflictError if the dataset has a sealed sequence that is not done."""

    @abstractmethod
    def seal(self, store: str, urn: str) -> None:
        """Make all steps put so far one durable sequence, all or nothing.

        Raises:
            ConflictError: if a sequence is pending, the watermark is not the planned one, or a newer process has fenced
                this one. Nothing was sealed.
        """

    @abstractmethod
    def get_commit_sequence(self, store: str, urn: str) -> CommitSequence | None:
        """Return the dataset's sealed sequence that is not done, or None."""
