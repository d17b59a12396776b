"""Contract of row checkers, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from contextlib import suppress

import pyarrow as pa
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import RowChecker


class RowCheckerContract(ABC):
    """Contract of row checkers: a checker checks each record independently of its batch, with the same result each
    time.

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
        """Return the checker."""

    @abstractmethod
    def passing(self) -> pa.RecordBatch:
        """Return two or more records that all pass."""

    @abstractmethod
    def failing(self) -> pa.RecordBatch:
        """Return two or more records that all fail; their schema may differ."""

    @pytest.fixture
    def checker(self) -> RowChecker:
        """Return the checker as an executor receives it, pickled after use."""
        used = self.make_checker()
        used.check(self.passing())
        sent: RowChecker = pickle.loads(pickle.dumps(used))
        return sent

    @staticmethod
    def answers(checker: RowChecker, batch: pa.RecordBatch) -> list[bool]:
        """Return for each row whether it passes."""
        mask = checker.check(batch)
        assert isinstance(mask, pa.BooleanArray), f"not a BooleanArray: {type(mask)}"
        assert len(mask) == batch.num_rows
        return [answer is True for answer in mask.to_pylist()]

    def test_checker_accepts_valid_records_and_rejects_others(self, checker: RowChecker) -> None:
        assert all(self.answers(checker, self.passing()))
        assert not any(self.answers(checker, self.failing()))

    def test_record_is_checked_independently_of_its_batch(self, checker: RowChecker) -> None:
        passing, failing = self.passing(), self.failing()
        for batch, answer in ((passing, True), (failing, False)):
            for row in range(batch.num_rows):
                assert self.answers(checker, batch.slice(row, 1)) == [answer]
        if passing.schema.equals(failing.schema):
            mixed = pa.Table.from_batches([failing.slice(1), passing, failing]).combine_chunks().to_batches()[0]
            requested = [False] * (failing.num_rows - 1) + [True] * passing.num_rows + [False] * failing.num_rows
            assert self.answers(checker, mixed) == requested
            assert self.answers(checker, mixed.slice(1)) == requested[1:]

    def test_empty_batch_gives_no_answers(self, checker: RowChecker) -> None:
        assert self.answers(checker, self.passing().slice(0, 0)) == []

    def test_repeated_call_returns_the_same_and_changes_nothing(self, checker: RowChecker) -> None:
        batch = self.passing()
        before = pa.Table.from_batches([batch]).combine_chunks().to_pydict()
        assert self.answers(checker, batch) == self.answers(checker, batch) == self.answers(self.make_checker(), batch)
        assert batch.to_pydict() == before

    def test_supported_schema_is_accepted(self, checker: RowChecker) -> None:
        checker.check_schema(self.passing().schema)

    def test_unsupported_schema_raises_only_a_configuration_error(self, checker: RowChecker) -> None:
        foreign = pa.record_batch({"there_is_no_such_column": pa.array([None], pa.list_(pa.int8()))})
        with suppress(ConfigurationError):
            checker.check_schema(foreign.schema)
        with suppress(ConfigurationError):
            self.answers(checker, foreign)

    def test_condition_is_described_in_one_line(self, checker: RowChecker) -> None:
        text = checker.describe()
        assert text.strip()
        assert len(text.splitlines()) == 1
        assert text == self.make_checker().describe()
