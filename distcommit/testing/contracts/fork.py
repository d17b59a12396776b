"""Contract of fork operators, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import combinations

import pyarrow as pa
import pytest

from distcommit.core.interfaces.constructs import ForkOperator


class ForkContract(ABC):
    """Contract of fork operators: a fork sends each record independently of its batch, always to the same existing
    branches.

    class TestMyFork(ForkContract):
        def make_fork(self):
            return MyFork(...)

        def branches(self):                            # as in the job file
            return ["cheap", "dear"]

        def batch(self):                               # some records for each branch
            return pa.record_batch({"price": [1, 100, None]})
    """

    @abstractmethod
    def make_fork(self) -> ForkOperator:
        """Return the fork operator."""

    @abstractmethod
    def branches(self) -> Sequence[str]:
        """Return all branches: two or more, each of which accepts the schema of `batch`."""

    @abstractmethod
    def batch(self) -> pa.RecordBatch:
        """Return three or more records, with some for each branch."""

    @pytest.fixture
    def fork(self) -> ForkOperator:
        """Return the fork operator as an executor receives it, pickled after use."""
        used = self.make_fork()
        used.choose(self.batch(), self.branches())
        sent: ForkOperator = pickle.loads(pickle.dumps(used))
        return sent

    @staticmethod
    def chosen(fork: ForkOperator, batch: pa.RecordBatch, branches: Sequence[str]) -> list[set[str]]:
        """Return the branches of each row."""
        masks = fork.choose(batch, branches)
        assert masks.keys() <= set(branches), "an unknown branch"
        rows: list[set[str]] = [set() for _ in range(batch.num_rows)]
        for branch, mask in masks.items():
            assert mask is None or isinstance(mask, pa.BooleanArray), f"not a BooleanArray: {type(mask)}"
            assert mask is None or len(mask) == batch.num_rows
            for row, goes in enumerate([True] * batch.num_rows if mask is None else mask.to_pylist()):
                if goes:
                    rows[row].add(branch)
        return rows

    def test_each_branch_receives_records(self, fork: ForkOperator) -> None:
        assert set().union(*self.chosen(fork, self.batch(), self.branches())) == set(self.branches())

    def test_record_is_sent_independently_of_its_batch(self, fork: ForkOperator) -> None:
        batch, branches = self.batch(), self.branches()
        complete = self.chosen(fork, batch, branches)
        assert [self.chosen(fork, batch.slice(row, 1), branches)[0] for row in range(batch.num_rows)] == complete
        assert self.chosen(fork, batch.slice(1), branches) == complete[1:]
        assert self.chosen(fork, batch.slice(0, 0), branches) == []

    def test_repeated_call_returns_the_same_and_changes_nothing(self, fork: ForkOperator) -> None:
        batch, branches = self.batch(), self.branches()
        first = self.chosen(fork, batch, branches)
        assert first == self.chosen(fork, batch, branches) == self.chosen(self.make_fork(), self.batch(), branches)
        assert batch.equals(self.batch(), check_metadata=True) or batch.to_pydict() == self.batch().to_pydict()

    def test_all_branches_accept_the_schema(self, fork: ForkOperator) -> None:
        assert all(fork.accepts(branch, self.batch().schema) for branch in self.branches())

    def test_skipped_branches_receive_no_records(self, fork: ForkOperator) -> None:
        for count in range(len(self.branches())):
            for branches in combinations(self.branches(), count):
                self.chosen(fork, self.batch(), branches)
