"""What a task checker has to keep, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa
import pytest

from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck, TaskChecker

Attempt = tuple[Sequence[pa.RecordBatch], BranchCounts]
"""What an attempt has written, and counted."""


class TaskCheckerContract(ABC):
    """It judges an attempt by all of its records, however batches are cut, and by no other attempt's.

    class TestMyChecker(TaskCheckerContract):
        def make_checker(self):
            return MyChecker(...)

        def passes(self):                              # what an attempt wrote, and counted
            return [pa.record_batch({"id": [1, 2]})], BranchCounts(read=2, written=2, rejected=0, filtered=0)

        def fails(self):
            return [pa.record_batch({"id": [1, 1]})], BranchCounts(read=2, written=2, rejected=0, filtered=0)
    """

    @abstractmethod
    def make_checker(self) -> TaskChecker:
        """The checker."""

    @abstractmethod
    def passes(self) -> Attempt:
        """An attempt that passes."""

    @abstractmethod
    def fails(self) -> Attempt:
        """An attempt that does not pass."""

    @pytest.fixture
    def checker(self) -> TaskChecker:
        """The checker as an executor gets it: it has travelled, after it was used."""
        made = self.make_checker()
        self.judged(made.begin(), self.passes())
        travelled: TaskChecker = pickle.loads(pickle.dumps(made))
        return travelled

    @staticmethod
    def judged(check: TaskCheck, attempt: Attempt, rows: int = 0) -> bool:
        """Whether it passes; its batches cut into pieces of so many rows, if any."""
        batches, counts = attempt
        for batch in batches:
            for first in range(0, batch.num_rows, rows or max(batch.num_rows, 1)):
                check.see(batch.slice(first, rows) if rows else batch)
        passed, detail = check.outcome(counts)
        assert isinstance(passed, bool)
        assert isinstance(detail, str)
        assert detail.strip(), "not a word of what was expected and found"
        assert len(detail.splitlines()) == 1
        return passed

    def test_what_is_as_it_should_be_passes_and_else_not(self, checker: TaskChecker) -> None:
        assert self.judged(checker.begin(), self.passes())
        assert not self.judged(checker.begin(), self.fails())

    def test_attempts_know_nothing_of_each_other(self, checker: TaskChecker) -> None:
        for _ in range(2):
            failing, passing = checker.begin(), checker.begin()
            assert not self.judged(failing, self.fails())
            assert self.judged(passing, self.passes())

    @pytest.mark.parametrize("rows", [1, 2])
    def test_it_does_not_matter_how_batches_are_cut(self, checker: TaskChecker, rows: int) -> None:
        assert self.judged(checker.begin(), self.passes(), rows)
        assert not self.judged(checker.begin(), self.fails(), rows)

    def test_asked_again_it_says_the_same(self, checker: TaskChecker) -> None:
        for attempt, wanted in ((self.passes(), True), (self.fails(), False)):
            check = checker.begin()
            assert self.judged(check, attempt) is wanted
            assert check.outcome(attempt[1])[0] is wanted

    def test_an_attempt_that_wrote_nothing_is_judged_too(self, checker: TaskChecker) -> None:
        self.judged(checker.begin(), ([], BranchCounts(read=0, written=0, rejected=0, filtered=0)))
        batches, _ = self.passes()
        self.judged(checker.begin(), ([batch.slice(0, 0) for batch in batches], BranchCounts(3, 0, 2, 1)))
