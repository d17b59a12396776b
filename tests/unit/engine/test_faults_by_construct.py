"""A fault in each construct in turn, under each policy: how far the watermark comes, what is published, and that the
next run, with the fault mended, publishes the rest. How far is said by the table of `conf/task-flow.md`, whose rows are
these faults, by name.

Twelve records in three work units of four; what is wrong is wrong at offset 6, in the midst of the second.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import distcommit
from distcommit.ingest.task_flow import Branch, Check, Stage, TaskFlow
from distcommit.model.committer import CommitOutcome, CommitRequest, FailedForGood, RetryLater
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
from distcommit.stores import by_hand
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.world import FILE_A_RECORD, World
from tests.unit.engine.machines import OUTPUT, Fault, Machine, audit, fails, go, statuses, with_folders
from tests.unit.engine.test_own_sinks import MemorySink, run_with

BAD = 6
SOURCE = ModelSource({"a": ModelDataset({"0": 12}, units=3), "b": ModelDataset({"0": 3})})
PAGE = Path(distcommit.__file__).parents[1] / "conf" / "task-flow.md"


def table() -> dict[str, tuple[dict[CommitPolicy, int], int]]:
    """By what goes wrong: how far the watermark comes under each policy, and that of the other dataset."""
    head = re.escape("    what goes wrong") + r" +full +successful +partial +others\n"
    found = re.search(rf"^{head}((?: {{4}}.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "the page has no such table"
    rows = [re.fullmatch(r" {4}(\S.*?)" + r" +(\d+)" * 4, line) for line in found[1].splitlines()]
    read = [(row[1], [int(number) for number in row.groups()[1:]]) for row in rows if row]
    assert len(dict(read)) == len(rows), "each row is one fault, with four numbers"
    return {name: (dict(zip(CommitPolicy, reached, strict=True)), other) for name, (*reached, other) in read}


TABLE = table()


def has_bad(batch: pa.RecordBatch) -> bool:
    offsets = batch.column("offset").to_pylist()
    return BAD in offsets


def break_down(batch: pa.RecordBatch) -> None:
    if has_bad(batch):
        raise ZeroDivisionError("a bug")


@dataclass(frozen=True)
class BatchByBatch(ModelSource):
    """The model source, a record a batch; it may break down there, at the bad one or with its work unit."""

    breaks: str = ""

    def open(self) -> Extractor:
        if self.breaks == "open":
            raise SourceError("the source can't be opened")
        return _Extractor(self, ModelSource.open(self))


@dataclass
class _Extractor(Extractor):
    source: BatchByBatch
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        if self.source.breaks == "extract" and unit.low.positions["0"] == 4:
            raise SourceError("the work unit can't be begun")
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
                if self.source.breaks == "batch" and has_bad(one):
                    raise SourceError("the source breaks down")
                self.reached = Watermark({"0": one.column("offset")[0].as_py() + 1})
                yield one

    def actual_high(self) -> Watermark:
        if self.source.breaks == "actual_high" and self.reached.positions["0"] in (BAD + 1, BAD + 2):
            raise ZeroDivisionError("a bug")
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


def stage(construct: Any, on_failure: Any = "fail", *, mandatory: bool = True) -> Flow:
    it = Stage("it", construct, mandatory, on_failure)
    return lambda source, sink: TaskFlow(source, (Branch(sink),), (it,))


def fork(operator: ForkOperator, in_right: tuple[Stage, ...] = ()) -> Flow:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        branches = (Branch(sink, "left"), Branch(sink, "right", in_right))
        return TaskFlow(source, branches, (), operator)

    return flow


def optional_right(source: Source, sink: Sink) -> TaskFlow:
    right = Branch(sink, "right", (Stage("it", BreakingConverter()),), optional=True)
    return TaskFlow(source, (Branch(sink, "left"), right), (), ToAll())


def checks(checker: TaskChecker, *, mandatory: bool = True) -> Flow:
    return lambda source, sink: TaskFlow(source, (Branch(sink, checks=(Check("it", checker, mandatory),)),))


@dataclass(frozen=True)
class Broken:
    """What is wrong: with the constructs, the source, or the file system."""

    flow: Flow = TaskFlow.straight
    files: FileSink = FILES
    source: str = ""
    fault: Callable[[], Fault] | None = None


def broken_files(breaks_at: str) -> FileSink:
    return BreakingSink(type="files", compression="none", breaks_at=breaks_at)


def no_space(kind: str) -> Callable[[], Fault]:
    """For files of error branches, before they are published."""
    return lambda: fails(errno.ENOSPC, kind, "/errors")


DIVERTS = stage(BreakingRowChecker(raises=False), "divert")
FAILS = {
    "extractor: batch raises": Broken(source="batch"),
    "extractor: extract raises": Broken(source="extract"),
    "extractor: actual_high raises": Broken(source="actual_high"),
    "extractor: can't be opened": Broken(source="open"),
    "converter: raises": Broken(stage(BreakingConverter())),
    "converter: makes another schema than it said": Broken(stage(LyingConverter())),
    "converter: rejects, on_rejected fail": Broken(stage(RejectingConverter())),
    "converter of one branch: raises": Broken(fork(ToAll(), (Stage("it", BreakingConverter()),))),
    "row checker: raises": Broken(stage(BreakingRowChecker())),
    "row checker: raises, optional": Broken(stage(BreakingRowChecker(), mandatory=False)),
    "row checker: says no, on_failure fail": Broken(stage(BreakingRowChecker(raises=False))),
    "fork: raises": Broken(fork(BreakingFork())),
    "fork: sends a record nowhere, on_rejected fail": Broken(fork(BreakingFork(raises=False))),
    "writer: raises": Broken(files=broken_files("write")),
    "writer: can't prepare": Broken(files=broken_files("prepare")),
    "error branch: its writer can't be opened": Broken(DIVERTS, fault=no_space("mkdir")),
    "error branch: its writer can't write": Broken(DIVERTS, fault=no_space("write")),
    "error branch: its writer can't prepare": Broken(DIVERTS, fault=no_space("rename")),
    "task checker: raises": Broken(checks(BreakingTaskChecker())),
    "task checker: raises, optional": Broken(checks(BreakingTaskChecker(), mandatory=False)),
    "task checker: says no": Broken(checks(BreakingTaskChecker(raises=False))),
}
"""Work units fail."""
GOES_ON = {
    "converter: rejects, on_rejected divert": (stage(RejectingConverter(), "divert"), 15, 1),
    "row checker: says no, on_failure divert": (DIVERTS, 15, 1),
    "row checker: says no, optional": (stage(BreakingRowChecker(raises=False), mandatory=False), 15, 0),
    "task checker: says no, optional": (checks(BreakingTaskChecker(raises=False), mandatory=False), 15, 0),
    "optional branch: its converter raises": (optional_right, 30, 4),
}
"""Nothing fails: how many records the audit counts, and how many in error branches. Of an optional branch its work unit
is diverted, no other."""
COMMIT_STEPS = {
    "publisher: rename of a folder fails": (False, f"{OUTPUT}/a", 0),
    "publisher: rename of the third file fails": (True, f"{OUTPUT}/a/", 2),
}
"""Whether the target's folder is there, what can't be renamed to, and how many files could before."""
COMMITTERS: dict[str, CommitOutcome | Exception] = {
    "committer: raises": ConnectionError("the target has gone"),
    "committer: says later": RetryLater("the target is locked"),
    "committer: says never": FailedForGood("the target does not have this column"),
}


def test_the_table_has_each_fault() -> None:
    assert set(TABLE) == {*FAILS, *GOES_ON, *COMMIT_STEPS, *COMMITTERS}


def require_as_the_table_says(name: str, world: World, machine: Machine) -> int:
    """Watermarks are; what they come to."""
    stored = world.watermarks(machine)
    found = [stored[urn].positions["0"] if urn in stored else 0 for urn in ("a", "b")]
    reached, others = TABLE[name]
    assert found == [reached[world.policy], others]
    return reached[world.policy] + others


@pytest.mark.parametrize("policy", list(CommitPolicy))
@pytest.mark.parametrize("name", list(FAILS))
def test_a_fault_in_a_construct(name: str, policy: CommitPolicy) -> None:
    machine, broken = Machine(), FAILS[name]
    world = World(policy=policy, flow=broken.flow, files=broken.files)
    if broken.fault is not None:
        machine.faults.append(broken.fault())
    result = go(world, machine, BatchByBatch(SOURCE.datasets, breaks=broken.source))
    machine.faults.clear()
    assert not result.succeeded
    assert {reason.subject for reason in result.totals.reasons} == ({"a", "b"} if broken.source == "open" else {"a"})
    assert all(reason.text for reason in result.totals.reasons)
    branches = len(broken.flow(SOURCE, FILES).branches)
    read = require_as_the_table_says(name, world, machine)
    assert audit(world, machine).exact
    assert audit(world, machine).records == read * branches
    mended = replace(world, flow=fork(ToAll()) if branches == 2 else TaskFlow.straight, files=FILES)
    assert go(mended, machine, BatchByBatch(SOURCE.datasets)).succeeded
    last = audit(mended, machine)
    assert (last.exact, last.records, last.rejected) == (True, (12 + 3) * branches, 0)


@pytest.mark.parametrize("policy", list(CommitPolicy))
@pytest.mark.parametrize("name", list(GOES_ON))
def test_what_fails_nothing_cuts_nothing_short(name: str, policy: CommitPolicy) -> None:
    machine, (flow, records, rejected) = Machine(), GOES_ON[name]
    world = World(policy=policy, flow=flow)
    assert go(world, machine, BatchByBatch(SOURCE.datasets)).succeeded
    require_as_the_table_says(name, world, machine)
    found = audit(world, machine)
    assert (found.exact, found.records, found.rejected) == (True, records, rejected)


@pytest.mark.parametrize("policy", list(CommitPolicy))
@pytest.mark.parametrize("name", list(COMMIT_STEPS))
def test_a_commit_step_that_fails_leaves_all_of_it_to_replay(name: str, policy: CommitPolicy) -> None:
    has_folder, target, published = COMMIT_STEPS[name]
    machine, world = with_folders(Machine(), *["a"] * has_folder), World(policy=policy, files=FILE_A_RECORD)
    machine.faults.append(fails(errno.EIO, "rename", target, first=published + 1))
    result = go(world, machine, BatchByBatch(SOURCE.datasets))
    machine.faults.clear()
    assert [reason.subject for reason in result.totals.reasons] == ["a"]
    require_as_the_table_says(name, world, machine)
    found = audit(world, machine)
    assert (found.pending, found.records, found.duplicates, found.gaps) == (["a (pending)"], 3, 0, 0)
    assert len([path for path in machine.paths(f"{OUTPUT}/a") if path.endswith(".parquet")]) == published
    assert go(world, machine, BatchByBatch(SOURCE.datasets)).succeeded
    last = audit(world, machine)
    assert (last.exact, last.records) == (True, 12 + 3)


@pytest.mark.parametrize("policy", list(CommitPolicy))
@pytest.mark.parametrize("name", list(COMMITTERS))
def test_a_committer_that_fails_leaves_all_of_it_to_replay(name: str, policy: CommitPolicy) -> None:
    outcome = COMMITTERS[name]

    def answer(request: CommitRequest) -> CommitOutcome | None:
        if request.dataset_urn != "a":
            return None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    machine, world, sink = Machine(), World(policy=policy, buckets=2), MemorySink(answers=answer)
    result = run_with(sink, machine, BatchByBatch(SOURCE.datasets), world)
    assert not result.succeeded
    assert "a" in {reason.subject for reason in result.totals.reasons}
    require_as_the_table_says(name, world, machine)
    others = {"b": [f"b/0/{offset}" for offset in range(3)]}
    assert sink.rows == others
    sink.answers = lambda request: None
    if isinstance(outcome, FailedForGood):
        assert statuses(world, machine)["a"] == "quarantined"
        by_hand.retry(world.store(machine), "a", "person")
    assert run_with(sink, machine, BatchByBatch(SOURCE.datasets), world).succeeded
    assert sink.rows == {"a": [f"a/0/{offset}" for offset in range(12)], **others}
