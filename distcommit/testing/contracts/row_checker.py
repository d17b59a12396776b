"""What a row checker has to keep, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from contextlib import suppress

import pyarrow as pa
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import RowChecker


class RowCheckerContract(ABC):
    """It answers for each record by itself, however batches are cut, the same each time.

    class TestMyChecker(RowCheckerContract):
        def make_checker(self):
            return MyChecker(...)

        def passing(self):                             # records that all pass
            return pa.record_batch({"price": [1, 2, 3]})

        def failing(self):                             # records of which none passes
            return pa.record_batch({"price": [-1, None]})
    """

    @abstractmethod
    def make_checker(self) -> RowChecker:
        """The checker."""

    @abstractmethod
    def passing(self) -> pa.RecordBatch:
        """Records that all pass: two or more."""

    @abstractmethod
    def failing(self) -> pa.RecordBatch:
        """Records of which none passes: two or more; their schema may be another."""

    @pytest.fixture
    def checker(self) -> RowChecker:
        """The checker as an executor gets it: it has travelled, after it was used."""
        made = self.make_checker()
        made.check(self.passing())
        travelled: RowChecker = pickle.loads(pickle.dumps(made))
        return travelled

    @staticmethod
    def answers(checker: RowChecker, batch: pa.RecordBatch) -> list[bool]:
        """By row whether it passes."""
        found = checker.check(batch)
        assert isinstance(found, pa.BooleanArray), f"no array of booleans: {type(found)}"
        assert len(found) == batch.num_rows
        return [answer is True for answer in found.to_pylist()]

    def test_what_is_as_it_should_be_passes_and_nothing_else(self, checker: RowChecker) -> None:
        assert all(self.answers(checker, self.passing()))
        assert not any(self.answers(checker, self.failing()))

    def test_each_record_is_judged_by_itself(self, checker: RowChecker) -> None:
        passing, failing = self.passing(), self.failing()
        for batch, answer in ((passing, True), (failing, False)):
            for row in range(batch.num_rows):
                assert self.answers(checker, batch.slice(row, 1)) == [answer]
        if passing.schema.equals(failing.schema):
            mixed = pa.Table.from_batches([failing.slice(1), passing, failing]).combine_chunks().to_batches()[0]
            wanted = [False] * (failing.num_rows - 1) + [True] * passing.num_rows + [False] * failing.num_rows
            assert self.answers(checker, mixed) == wanted
            assert self.answers(checker, mixed.slice(1)) == wanted[1:]

    def test_no_records_are_no_answers(self, checker: RowChecker) -> None:
        assert self.answers(checker, self.passing().slice(0, 0)) == []

    def test_asked_again_it_says_the_same_and_changes_nothing(self, checker: RowChecker) -> None:
        batch = self.passing()
        before = pa.Table.from_batches([batch]).combine_chunks().to_pydict()
        assert self.answers(checker, batch) == self.answers(checker, batch) == self.answers(self.make_checker(), batch)
        assert batch.to_pydict() == before

    def test_a_schema_that_it_can_work_with_is_accepted(self, checker: RowChecker) -> None:
        checker.check_schema(self.passing().schema)

    def test_for_a_schema_it_can_not_work_with_it_has_no_other_error_than_that(self, checker: RowChecker) -> None:
        foreign = pa.record_batch({"there_is_no_such_column": pa.array([None], pa.list_(pa.int8()))})
        with suppress(ConfigurationError):
            checker.check_schema(foreign.schema)
        with suppress(ConfigurationError):
            self.answers(checker, foreign)

    def test_what_it_asks_for_is_said_in_one_line(self, checker: RowChecker) -> None:
        text = checker.describe()
        assert text.strip()
        assert len(text.splitlines()) == 1
        assert text == self.make_checker().describe()
