"""Flows that reject records of a `ModelSource`, by their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.interfaces.constructs import ForkOperator, RowChecker
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow


@dataclass(frozen=True, slots=True)
class NoneOf(RowChecker):
    """Checker that rejects these values."""

    values: frozenset[str]

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.invert(pc.is_in(batch.column("value"), value_set=pa.array(sorted(self.values), pa.string())))

    def describe(self) -> str:
        return f"none of {sorted(self.values)}"


@dataclass(frozen=True, slots=True)
class ByValue(ForkOperator):
    """Fork that sends all values to all branches, except those that a branch excludes, by its name."""

    not_for: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return {branch: NoneOf(self.not_for.get(branch, frozenset())).check(batch) for branch in branches}


@dataclass(frozen=True, slots=True)
class TurningAway:
    """Return a flow that rejects these values, and filters others; with branches, one that rejects those of each of
    them, too."""

    values: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    branches: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fork: ByValue = field(default_factory=ByValue)

    def __call__(self, source: Source, sink: Sink) -> TaskFlow:
        stages = (
            Stage("none_of", NoneOf(self.values), on_failure="divert"),
            Stage("dropped", NoneOf(self.dropped), on_failure="drop"),
        )
        if not self.branches:
            return TaskFlow(source, (Branch(sink),), stages, on_rejected="divert")
        branches = [
            Branch(sink, name, (Stage("none_of", NoneOf(values), on_failure="divert"),))
            for name, values in self.branches.items()
        ]
        return TaskFlow(source, branches, stages, self.fork, "divert")
