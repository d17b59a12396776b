"""Instances of custom classes are created in each process: their state is never pickled."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import Section, validated
from distcommit.core.interfaces.constructs import (
    BranchCounts,
    Converted,
    Converter,
    ForkOperator,
    RowChecker,
    TaskCheck,
    TaskChecker,
)
from distcommit.core.work_units import WorkUnit


class Keeps(Converter, RowChecker, TaskChecker, TaskCheck, ForkOperator):
    """A class of all custom kinds, with state that can't be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.repeat(True, batch.num_rows)

    def describe(self) -> str:
        return "anything"

    def begin(self) -> TaskCheck:
        return self

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        return True, "anything"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return dict.fromkeys(branches)


@pytest.mark.parametrize("section", ["converter", "row_checker", "task_checker", "fork"])
def test_state_of_a_custom_class_is_not_pickled(section: Section) -> None:
    instance = validated(section, {"type": "python", "class": f"{__name__}:Keeps"})
    assert instance.instance is instance.instance
    travelled = pickle.loads(pickle.dumps(instance))
    assert travelled == instance
    assert travelled.instance is not instance.instance
