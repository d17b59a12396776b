"""The built-in task checkers fulfill the task checker contract."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import types_of, validated
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck, TaskChecker
from distcommit.testing.contracts import TaskCheckerContract

NOW = datetime.now(UTC)


class EvenSum(TaskChecker):
    """A custom task checker."""

    def begin(self) -> TaskCheck:
        return EvenSumCheck()


class EvenSumCheck(TaskCheck):
    """The sum of one attempt."""

    def __init__(self) -> None:
        self.sum = 0

    def inspect(self, batch: pa.RecordBatch) -> None:
        self.sum += sum(batch["a"].to_pylist())

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        return self.sum % 2 == 0, f"expected an even sum, found {self.sum}"


WRITTEN_2 = (2, 2, 0, 0)
Attempt = tuple[Mapping[str, Any], tuple[int, int, int, int]]
CASES: Mapping[str, tuple[Mapping[str, Any], Attempt, Attempt]] = {
    "unique": ({"columns": ["a"]}, ({"a": [1, 2]}, WRITTEN_2), ({"a": [1, 1]}, WRITTEN_2)),
    "row_count": ({"min": 2}, ({"a": [1, 2]}, WRITTEN_2), ({"a": [1]}, (2, 1, 0, 1))),
    "row_count_of_source": ({}, ({"a": [1]}, (3, 1, 1, 1)), ({"a": [1]}, (3, 1, 1, 0))),
    "fraction_rejected": ({"max": 0.5}, ({"a": [1]}, (2, 1, 1, 0)), ({"a": [1]}, (3, 1, 2, 0))),
    "freshness": (
        {"column": "a", "max_age_s": 3600},
        ({"a": [NOW - timedelta(days=1), NOW, None]}, (3, 3, 0, 0)),
        ({"a": [NOW - timedelta(days=1), None]}, WRITTEN_2),
    ),
    "schema": ({"columns": {"a": "int64"}}, ({"a": [1, 2]}, WRITTEN_2), ({"a": ["1", "2"]}, WRITTEN_2)),
    "python": ({"class": f"{__name__}:EvenSum"}, ({"a": [1, 3]}, WRITTEN_2), ({"a": [1, 2]}, WRITTEN_2)),
}


def test_every_built_in_task_checker_is_tested_by_the_contract() -> None:
    assert CASES.keys() == set(types_of("task_checker"))


@pytest.mark.parametrize("name", CASES)
class TestBuiltIn(TaskCheckerContract):
    @pytest.fixture(autouse=True)
    def _of_that_type(self, name: str) -> None:
        settings, self.passing, self.failing = CASES[name]
        self.settings = {"type": name, **settings}

    def make_checker(self) -> TaskChecker:
        instance: TaskChecker = validated("task_checker", self.settings)
        return instance

    def passes(self) -> tuple[list[pa.RecordBatch], BranchCounts]:
        return [pa.record_batch(self.passing[0])], BranchCounts(*self.passing[1])

    def fails(self) -> tuple[list[pa.RecordBatch], BranchCounts]:
        return [pa.record_batch(self.failing[0])], BranchCounts(*self.failing[1])
