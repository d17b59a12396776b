"""Contract of task checkers, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa
import pytest

from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck, TaskChecker

Attempt = tuple[Sequence[pa.RecordBatch], BranchCounts]
"""The written batches and the counts of an attempt."""


class TaskCheckerContract(ABC):
    """Contract of task checkers: a checker decides by all records of one attempt, independently of its batches and of
    other attempts.

    class TestMyChecker(TaskCheckerContract):
        def make_checker(self):
            return MyChecker(...)

        def passes(self):                              # written batches and counts of an attempt
            return [pa.record_batch({"id": [1, 2]})], BranchCounts(read=2, written=2, rejected=0, filtered=0)

        def fails(self):
            return [pa.record_batch({"id": [1, 1]})], BranchCounts(read=2, written=2, rejected=0, filtered=0)
    """

    @abstractmethod
    def make_checker(self) -> TaskChecker:
        """Return the checker."""

    @abstractmethod
    def passes(self) -> Attempt:
        """Return an attempt that passes."""

    @abstractmethod
    def fails(self) -> Attempt:
        """Return an attempt that fails."""

    @pytest.fixture
    def checker(self) -> TaskChecker:
        """Return the checker as an executor receives it, pickled after use."""
        used = self.make_checker()
        self.judged(used.begin(), self.passes())
        sent: TaskChecker = pickle.loads(pickle.dumps(used))
        return sent

    @staticmethod
    def judged(check: TaskCheck, attempt: Attempt, rows: int = 0) -> bool:
        """Return whether the attempt passes, with its batches split into slices of `rows` rows (0: whole)."""
        batches, counts = attempt
        for batch in batches:
            for first in range(0, batch.num_rows, rows or max(batch.num_rows, 1)):
                check.inspect(batch.slice(first, rows) if rows else batch)
        passed, detail = check.outcome(counts)
        assert isinstance(passed, bool)
        assert isinstance(detail, str)
        assert detail.strip(), "no text of the expected and actual state"
        assert len(detail.splitlines()) == 1
        return passed

    def test_checker_accepts_valid_attempts_and_rejects_others(self, checker: TaskChecker) -> None:
        assert self.judged(checker.begin(), self.passes())
        assert not self.judged(checker.begin(), self.fails())

    def test_attempts_are_checked_independently(self, checker: TaskChecker) -> None:
        for _ in range(2):
            failing, passing = checker.begin(), checker.begin()
            assert not self.judged(failing, self.fails())
            assert self.judged(passing, self.passes())

    @pytest.mark.parametrize("rows", [1, 2])
    def test_outcome_is_independent_of_batch_boundaries(self, checker: TaskChecker, rows: int) -> None:
        assert self.judged(checker.begin(), self.passes(), rows)
        assert not self.judged(checker.begin(), self.fails(), rows)

    def test_repeated_call_returns_the_same(self, checker: TaskChecker) -> None:
        for attempt, requested in ((self.passes(), True), (self.fails(), False)):
            check = checker.begin()
            assert self.judged(check, attempt) is requested
            assert check.outcome(attempt[1])[0] is requested

    def test_empty_attempt_gets_an_outcome(self, checker: TaskChecker) -> None:
        self.judged(checker.begin(), ([], BranchCounts(read=0, written=0, rejected=0, filtered=0)))
        batches, _ = self.passes()
        self.judged(checker.begin(), ([batch.slice(0, 0) for batch in batches], BranchCounts(3, 0, 2, 1)))
