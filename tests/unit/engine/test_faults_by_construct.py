"""A fault in each construct in turn, under each policy: how far the watermark comes, what is published, and that the
next run, with the fault mended, publishes the rest.

Twelve records in three work units of four; what is wrong is wrong at offset 6, in the midst of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from distcommit.ingest.task_flow import Branch, Check, Stage, TaskFlow
from distcommit.model.constructs import (
    BranchCounts,
    Converted,
    Converter,
    ForkOperator,
    RowChecker,
    TaskCheck,
    TaskChecker,
)
from distcommit.model.errors import SourceError
from distcommit.model.sink import AttemptIdentity, Origin, Origins, Sink, SinkWriter, StagingArea
from distcommit.model.source import Extraction, Extractor, Source
from distcommit.model.watermark import Watermark
from distcommit.model.work import WorkUnit
from distcommit.protocol.readiness import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.world import World
from tests.unit.engine.machines import Machine, audit, go, states

BAD = 6
SOURCE = ModelSource({"a": ModelDataset({"0": 12}, units=3), "b": ModelDataset({"0": 3})})
READ = {CommitPolicy.FULL: 0, CommitPolicy.SUCCESSFUL: 4, CommitPolicy.PARTIAL: BAD}
"""How far the watermark comes if the second work unit fails at the bad record."""
AT_THE_END = ("writer raises", "writer can't prepare", "task checker raises", "task checker says no")
"""What fails once branches have taken the record, so that no prefix is whole in all of them."""


def has_bad(batch: pa.RecordBatch) -> bool:
    offsets = batch.column("offset").to_pylist()
    return BAD in offsets


def break_down(batch: pa.RecordBatch) -> None:
    if has_bad(batch):
        raise ZeroDivisionError("a bug")


@dataclass(frozen=True)
class BatchByBatch(ModelSource):
    """The model source, a record a batch; it may break down at the bad one."""

    breaks: bool = False

    def open(self) -> Extractor:
        return _Extractor(self, ModelSource.open(self))


@dataclass
class _Extractor(Extractor):
    source: BatchByBatch
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        return _Extraction(self.source, self.inner.extract(unit), unit.low)

    def close(self) -> None:
        self.inner.close()


@dataclass
class _Extraction(Extraction):
    source: BatchByBatch
    inner: Extraction
    reached: Watermark

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.inner:
            for row in range(batch.num_rows):
                one = batch.slice(row, 1)
                if self.source.breaks and has_bad(one):
                    raise SourceError("the source breaks down")
                self.reached = Watermark({"0": one.column("offset")[0].as_py() + 1})
                yield one

    def actual_high(self) -> Watermark:
        return self.reached

    def bytes_read(self) -> int:
        return 0


class BreakingConverter(Converter):
    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        break_down(batch)
        yield Converted(batch)


class LyingConverter(Converter):
    """Returns another schema than it said."""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        yield Converted(batch.select(["offset", "partition"]) if has_bad(batch) else batch)


class RejectingConverter(Converter):
    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        yield Converted(batch.slice(0, 0), pa.array([], pa.int64()), {0: "no"}) if has_bad(batch) else Converted(batch)


@dataclass(frozen=True)
class BreakingRowChecker(RowChecker):
    raises: bool = True

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        if self.raises:
            break_down(batch)
        return pa.array([not has_bad(batch)] * batch.num_rows)

    def describe(self) -> str:
        return "is good"


@dataclass(frozen=True)
class BreakingFork(ForkOperator):
    raises: bool = True

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        if self.raises:
            break_down(batch)
        nowhere = pa.array([False] * batch.num_rows)
        return {branch: nowhere if has_bad(batch) and not self.raises else None for branch in branches}


class ToAll(ForkOperator):
    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return dict.fromkeys(branches)


@dataclass(frozen=True)
class BreakingTaskChecker(TaskChecker):
    raises: bool = True

    def begin(self) -> TaskCheck:
        return _Check(self.raises)


@dataclass
class _Check(TaskCheck):
    raises: bool
    passes: bool = True

    def see(self, batch: pa.RecordBatch) -> None:
        if self.raises:
            break_down(batch)
        self.passes &= not has_bad(batch)

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        return self.passes, "no bad one"


class BreakingSink(FileSink, frozen=True):
    """Files, whose writer breaks down at the bad record, or at the end of what it is in."""

    breaks_at: str = "write"

    def open_writer(  # type: ignore[override]  # a writer around that of files
        self, attempt: AttemptIdentity, area: StagingArea, origin: Origin
    ) -> SinkWriter:
        return _Writer(FileSink.open_writer(self, attempt, area, origin), self.breaks_at)


class _Writer(SinkWriter):
    def __init__(self, inner: SinkWriter, breaks_at: str) -> None:
        self._inner, self._at, self._met = inner, breaks_at, False

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self._met |= has_bad(batch)
        if self._met and self._at == "write":
            raise OSError(28, "no space left on device")
        self._inner.write(batch, origins)

    def note_holes(self, holes: Any) -> None:
        self._inner.note_holes(holes)

    def note_filtered(self, filtered: Any) -> bool:
        return self._inner.note_filtered(filtered)

    def prepare_commit(self) -> Any:
        if self._met and self._at == "prepare":
            raise OSError(28, "no space left on device")
        return self._inner.prepare_commit()

    def abort(self) -> None:
        self._inner.abort()


Flow = Callable[[Source, Sink], TaskFlow]
FILES = FileSink(compression="none")


def stage(construct: Any, on_failure: Any = "fail") -> Flow:
    return lambda source, sink: TaskFlow(source, (Branch(sink),), (Stage("it", construct, on_failure=on_failure),))


def fork(operator: ForkOperator, in_right: tuple[Stage, ...] = ()) -> Flow:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        branches = (Branch(sink, "left"), Branch(sink, "right", in_right))
        return TaskFlow(source, branches, (), operator)

    return flow


def optional_right(source: Source, sink: Sink) -> TaskFlow:
    right = Branch(sink, "right", (Stage("it", BreakingConverter()),), optional=True)
    return TaskFlow(source, (Branch(sink, "left"), right), (), ToAll())


def checks(checker: TaskChecker) -> Flow:
    return lambda source, sink: TaskFlow(source, (Branch(sink, checks=(Check("it", checker),)),))


BREAKS: dict[str, World] = {
    "converter raises": World(flow=stage(BreakingConverter())),
    "converter makes another schema than it said": World(flow=stage(LyingConverter())),
    "converter rejects, on_rejected fail": World(flow=stage(RejectingConverter())),
    "row checker raises": World(flow=stage(BreakingRowChecker())),
    "row checker says no, on_failure fail": World(flow=stage(BreakingRowChecker(raises=False))),
    "fork raises": World(flow=fork(BreakingFork())),
    "fork sends a record nowhere, on_rejected fail": World(flow=fork(BreakingFork(raises=False))),
    "converter of one branch raises": World(flow=fork(ToAll(), (Stage("it", BreakingConverter()),))),
    "writer raises": World(files=BreakingSink(type="files", compression="none")),
    "writer can't prepare": World(files=BreakingSink(type="files", compression="none", breaks_at="prepare")),
    "task checker raises": World(flow=checks(BreakingTaskChecker())),
    "task checker says no": World(flow=checks(BreakingTaskChecker(raises=False))),
}


@pytest.mark.parametrize("policy", list(READ))
@pytest.mark.parametrize("broken", ["source", *BREAKS])
def test_a_fault_in_a_construct(broken: str, policy: CommitPolicy) -> None:
    machine = Machine()
    source = BatchByBatch(SOURCE.datasets, breaks=broken == "source")
    world = replace(BREAKS.get(broken, World()), policy=policy)
    result = go(world, machine, source)
    assert not result.succeeded
    (said,) = (reason for reason in result.totals.reasons if reason.subject == "a")
    assert said.text
    reached = min(READ[policy], 4) if broken in AT_THE_END else READ[policy]
    after = states(world, machine)
    assert after["b"].watermark is not None
    assert after["b"].watermark.positions == {"0": 3}, "the others are as they would be without it"
    known = after.get("a")
    found = known.watermark.positions["0"] if known is not None and known.watermark is not None else 0
    assert found == reached
    branches = 2 if "fork" in broken or "branch" in broken else 1
    assert audit(world, machine).exact
    assert audit(world, machine).records == (reached + 3) * branches
    mended = replace(world, flow=fork(ToAll()) if branches == 2 else TaskFlow.straight, files=FILES)
    assert go(mended, machine, BatchByBatch(SOURCE.datasets)).succeeded
    last = audit(mended, machine)
    assert last.exact
    assert last.records == (12 + 3) * branches


@pytest.mark.parametrize("policy", list(READ))
def test_a_record_that_is_diverted_fails_nothing(policy: CommitPolicy) -> None:
    machine = Machine()
    world = World(policy=policy, flow=stage(BreakingRowChecker(raises=False), "divert"))
    assert go(world, machine, BatchByBatch(SOURCE.datasets)).succeeded
    found = audit(world, machine)
    assert (found.exact, found.records, found.rejected) == (True, 15, 1)


@pytest.mark.parametrize("policy", list(READ))
def test_an_optional_branch_that_breaks_fails_nothing_and_cuts_nothing_short(policy: CommitPolicy) -> None:
    machine = Machine()
    world = World(policy=policy, flow=optional_right)
    assert go(world, machine, BatchByBatch(SOURCE.datasets)).succeeded
    found = audit(world, machine)
    assert (found.exact, found.records, found.rejected) == (True, 30, 4), "its work unit is diverted, no other"
