"""The built-in fork operators fulfill the fork contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from distcommit.app.job_file.built_in_types import types_of, validated
from distcommit.core.interfaces.constructs import ForkOperator
from distcommit.testing.contracts import ForkContract


class ByParity(ForkOperator):
    """A custom fork operator."""

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        odd = pc.equal(pc.bit_wise_and(batch["a"], 1), 1)
        return {branch: odd if branch == "y" else pc.invert(odd) for branch in branches}


WHEN = {"x": {"column": "a", "op": "<", "value": 3}, "y": {"column": "a", "op": ">", "value": 1}}
CASES: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "first_match": {"when": {**WHEN, "z": {"column": "a", "op": "is_null"}}},
    "every_match": {"when": {**WHEN, "z": {"column": "a", "op": "is_null"}}},
    "by_schema": {"requires": {"x": ["a"], "y": ["a", "b"], "z": []}},
    "python": {"class": f"{__name__}:ByParity"},
}


def test_every_built_in_fork_operator_is_tested_by_the_contract() -> None:
    assert CASES.keys() == set(types_of("fork"))


@pytest.mark.parametrize("name", CASES)
class TestBuiltIn(ForkContract):
    @pytest.fixture(autouse=True)
    def _of_that_type(self, name: str) -> None:
        self.settings = {"type": name, **CASES[name]}

    def make_fork(self) -> ForkOperator:
        instance: ForkOperator = validated("fork", self.settings)
        return instance

    def branches(self) -> Sequence[str]:
        return ["x", "y", "z"]

    def batch(self) -> pa.RecordBatch:
        return pa.record_batch({"a": [1, 2, None, 4], "b": [1, 1, 1, 1]})
