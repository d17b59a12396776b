"""Commit sequences and the store that holds them: the interface of the original design.

After Apache Gobblin's "Exactly Once Support" page: https://gobblin.apache.org/docs/miscellaneous/Exactly-Once-Support/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from distcommit.core.errors import DistcommitError, LostError
from distcommit.core.interfaces.steps import CommitStep
from distcommit.steps.execution import execute_sequences


def _lost_as_it_is(error: LostError) -> LostError:
    return error


def _failed_as_it_is(error: DistcommitError) -> DistcommitError:
    return error


@dataclass(frozen=True, slots=True)
class CommitSequence:
    """All steps of one dataset, sealed together, in the order they are executed.

    `close` is called once every step is done and durable; it records that in the store. `lose` is called with the error
    of a lost step, and `fail` with the error of a step that failed otherwise. Each records it in the store, and returns
    the error to be raised, which says what to do in this store.
    """

    dataset_urn: str
    steps: tuple[CommitStep, ...]
    close: Callable[[], None] = field(repr=False)
    lose: Callable[[LostError], LostError] = field(repr=False, default=_lost_as_it_is)
    fail: Callable[[DistcommitError], DistcommitError] = field(repr=False, default=_failed_as_it_is)

    def commit(self) -> bool:
        """Verify and execute the steps in their order, make all effects durable, and close the sequence.

        A step that is done is not executed again, and no step is executed after one that failed. Calling it again is
        safe.

        Returns:
            True: the sequence is done.

        Raises:
            LostError: if a step's effect can neither be proven nor be redone; nothing is closed.
            DistcommitError: if a step fails; nothing is closed.
        """
        outcomes = execute_sequences({self.dataset_urn: self.steps}, verify_first=True)
        lost, failed = outcomes.lost.get(self.dataset_urn), outcomes.failed.get(self.dataset_urn)
        if lost is not None:
            ids = {**lost.ids, "dataset": self.dataset_urn}
            error = LostError(lost.what, expected=lost.expected, found=lost.found, todo=lost.todo, **ids)
            raise self.lose(error) from lost
        if failed is not None:
            raise self.fail(failed) from failed
        self.close()
        return True


class CommitStepStore(ABC):
    """Holds commit steps by store (the job's name) and dataset URN until they are executed.

    Steps that were `put` but not sealed are never executed and need not survive the process. `seal` makes all of a
    dataset's steps durable at once: a reader sees all of them or none.
    """

    @abstractmethod
    def create(self, store: str, urn: str | None = None) -> bool:
        """Makes room for a job, or for one of its datasets. False if it was there already."""

    @abstractmethod
    def exists(self, store: str, urn: str | None = None) -> bool:
        """Whether the job is known or, with `urn`, whether that dataset has a sealed sequence that is not done."""

    @abstractmethod
    def remove(self, store: str, urn: str | None = None) -> bool:
        """Forgets a dataset's unsealed steps, or a job in which nothing is pending. False if there was nothing.

        Raises:
            ConflictError: if a sealed sequence is pending: it must be committed, not removed.
        """

    @abstractmethod
    def put(self, store: str, urn: str, step: CommitStep) -> bool:
        """Adds a step to the dataset's unsealed steps.

        Raises:
            ConflictError: if the dataset has a sealed sequence that is not done.
        """

    @abstractmethod
    def seal(self, store: str, urn: str) -> None:
        """Makes all steps put so far one durable sequence (all or nothing).

        Raises:
            ConflictError: if the dataset has a pending sequence, its watermark is not the planned one, or a newer
                process has fenced this one; nothing was sealed.
        """

    @abstractmethod
    def get_commit_sequence(self, store: str, urn: str) -> CommitSequence | None:
        """The dataset's sealed sequence that is not done, or None."""
