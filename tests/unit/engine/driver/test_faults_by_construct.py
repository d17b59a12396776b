"""A fault in each construct under each policy: how far the watermark moves, what is published, and that the next run
without the fault publishes the rest.

The table of `conf/docs/reference/task-flow-faults.md` has the expected watermarks, by fault. For
some of them the job file allows only the policy `full`. Twelve records are in three work units of four; the fault is at
offset 6, in the middle of the second.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import distcommit
from distcommit.core.errors import SourceError, SourceUnavailableError
from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, FailedForGood, RetryLater
from distcommit.core.interfaces.constructs import (
    BranchCounts,
    Converted,
    Converter,
    ForkOperator,
    RowChecker,
    TaskCheck,
    TaskChecker,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Publish, Sink, SinkWriter, StagingArea
from distcommit.core.interfaces.source import Extraction, Extractor, Planned, Source
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import RunResult
from distcommit.pipeline.task_flow import Branch, Check, Stage, TaskFlow
from distcommit.protocol.paths.shared_names import work_unit_name
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import FILE_A_RECORD, World
from tests.unit.engine.driver.machines import OUTPUT, Fault, Machine, audit, fails, go, statuses, with_folders
from tests.unit.engine.driver.test_custom_sinks import MemorySink, run_with

BAD, SECOND_UNIT = 6, work_unit_name(0, 1)
LIMIT_S = 0.5
SOURCE = ModelSource({"a": ModelDataset({"0": 12}, units=3), "b": ModelDataset({"0": 3})})
PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "task-flow-faults.md"


def table() -> dict[str, tuple[dict[CommitPolicy, int], int]]:
    """Return the expected watermarks by fault: one for each policy that the page lists, and that of the other
    dataset.
    """
    head = r"what goes wrong +full +successful +partial +others\n"
    table_match = re.search(rf"^{head}((?:\w.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert table_match, "the page must contain the table"
    rows = [re.fullmatch(r"(\S.*?)" + r" +(\d+|-)" * 3 + r" +(\d+)", line) for line in table_match[1].splitlines()]
    read = [(row[1], row.groups()[1:4], int(row[5])) for row in rows if row]
    assert len({name for name, _, _ in read}) == len(rows), "each row must have one fault and four numbers"
    return {
        name: ({p: int(far) for p, far in zip(CommitPolicy, reached, strict=True) if far != "-"}, others)
        for name, reached, others in read
    }


TABLE = table()


def cases(names: Iterable[str]) -> list[tuple[str, CommitPolicy]]:
    """Return each of these faults with each of its policies."""
    return [(name, policy) for name in names for policy in TABLE.get(name, ({CommitPolicy.FULL: 0}, 0))[0]]


def has_bad(batch: pa.RecordBatch) -> bool:
    offsets = batch.column("offset").to_pylist()
    return BAD in offsets


def break_down(batch: pa.RecordBatch) -> None:
    if has_bad(batch):
        raise ZeroDivisionError("a bug")


@dataclass(frozen=True)
class BatchByBatch(ModelSource):
    """The model source with one record a batch. It may fail at the start, at the bad record or at the end of its work
    unit.
    """

    breaks: str = ""

    def plan(self, owned: Any, states: Any) -> Iterator[Planned]:
        if self.breaks == "plan":
            raise SourceError("the source can't be asked")
        return ModelSource.plan(self, owned, states)

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
        if self.source.breaks == "close":
            raise SourceError("the source can't be let go of")


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
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        break_down(batch)
        yield Converted(batch)


class WideningConverter(Converter):
    """A converter that returns another schema for the bad record."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch.append_column("more", pa.array(["more"])) if has_bad(batch) else batch)


class RefusingConverter(Converter):
    """A converter that raises when it is asked for the output schema."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        if "more" in schema.names:
            raise ZeroDivisionError("a bug")
        return None

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)


@dataclass
class UnluckyConverter(Converter):
    """A converter that raises when its second work unit begins, or when it is closed."""

    at: str
    begun: int = 0

    def begin_work_unit(self, unit: WorkUnit) -> None:
        self.begun += 1
        if self.at == "begin_work_unit" and self.begun == 2:
            raise ZeroDivisionError("a bug")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)

    def close(self) -> None:
        if self.at == "close":
            raise ZeroDivisionError("a bug")


def never_end(batch: pa.RecordBatch) -> None:
    while has_bad(batch):
        time.sleep(0.01)


class Endless(Converter, ForkOperator):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        never_end(batch)
        yield Converted(batch)

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        never_end(batch)
        return dict.fromkeys(branches)


class EndlessRowChecker(RowChecker):
    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        never_end(batch)
        return pa.array([True] * batch.num_rows)

    def describe(self) -> str:
        return "is good"


class LyingConverter(Converter):
    """A converter that returns another schema than it declared."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch.select(["offset", "partition"]) if has_bad(batch) else batch)


class RejectingConverter(Converter):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
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
class UnluckyTaskChecker(TaskChecker):
    """A task checker that raises when its second work unit begins."""

    begun: int = 0

    def begin(self) -> TaskCheck:
        self.begun += 1
        if self.begun == 2:
            raise ZeroDivisionError("a bug")
        return _Check(raises=False)


@dataclass
class _Check(TaskCheck):
    raises: bool
    passes: bool = True

    def inspect(self, batch: pa.RecordBatch) -> None:
        if self.raises:
            break_down(batch)
        self.passes &= not has_bad(batch)

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        return self.passes, "no bad one"


class BreakingSink(FileSink):
    """A file sink whose writer fails at the bad record, or when the file with that record is opened or closed."""

    breaks_at: str = "write"

    def open_writer(  # type: ignore[override]  # a writer around that of files
        self, attempt: AttemptIdentity, area: StagingArea, origin: Origin
    ) -> SinkWriter:
        if self.breaks_at == "open" and attempt.work_unit_id == SECOND_UNIT:
            raise OSError(28, "no space left on device")
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


def refused(source: Source, sink: Sink) -> TaskFlow:
    stages = (Stage("widening", WideningConverter()), Stage("it", RefusingConverter()))
    return TaskFlow(source, (Branch(sink),), stages)


def limited(flow: Flow) -> Flow:
    return lambda source, sink: replace(flow(source, sink), construct_seconds=LIMIT_S)


def fork(operator: ForkOperator, in_right: tuple[Stage, ...] = (), on_rejected: Any = "fail") -> Flow:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        branches = (Branch(sink, "left"), Branch(sink, "right", in_right))
        return TaskFlow(source, branches, (), operator, on_rejected)

    return flow


def optional_right(*stages: Stage, files: Sink | None = None, check: Check | None = None) -> Flow:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        right = Branch(files or sink, "right", stages, (check,) if check else (), optional=True)
        return TaskFlow(source, (Branch(sink, "left"), right), (), ToAll())

    return flow


def checks(checker: TaskChecker, *, mandatory: bool = True) -> Flow:
    return lambda source, sink: TaskFlow(source, (Branch(sink, checks=(Check("it", checker, mandatory),)),))


def unlucky(source: Source, sink: Sink) -> TaskFlow:
    return stage(UnluckyConverter("begin_work_unit"))(source, sink)


def unlucky_check(source: Source, sink: Sink) -> TaskFlow:
    return checks(UnluckyTaskChecker())(source, sink)


@dataclass(frozen=True)
class Broken:
    """A fault of the constructs, the source or the file system. `of` names the part that is reported as failed; `whole`
    is true where the fault decides whether all of the job is published or nothing.
    """

    flow: Flow = TaskFlow.straight
    files: FileSink = FILES
    source: str = ""
    fault: Callable[[], Fault] | None = None
    of: frozenset[str] = frozenset({"a"})
    whole: bool = False


def broken_files(breaks_at: str) -> FileSink:
    return BreakingSink(type="files", compression="none", breaks_at=breaks_at)


def no_space(kind: str) -> Callable[[], Fault]:
    """Build faults for a full disk when error-branch files are published."""
    return lambda: fails(errno.ENOSPC, kind, "/errors")


DIVERTS = stage(BreakingRowChecker(raises=False), "divert")
FAILS = {
    "extractor: batch raises": Broken(source="batch"),
    "extractor: extract raises": Broken(source="extract"),
    "extractor: actual_high raises": Broken(source="actual_high"),
    "extractor: can't be opened": Broken(source="open", of=frozenset({"a", "b"})),
    "converter: raises": Broken(stage(BreakingConverter())),
    "converter: raises, scope job": Broken(stage(BreakingConverter()), whole=True),
    "converter: convert_schema raises": Broken(refused),
    "converter: begin_work_unit raises": Broken(unlucky),
    "converter: never ends": Broken(limited(stage(Endless()))),
    "converter: makes another schema than it said": Broken(stage(LyingConverter())),
    "converter: rejects, on_rejected fail": Broken(stage(RejectingConverter())),
    "converter of one branch: raises": Broken(fork(ToAll(), (Stage("it", BreakingConverter()),))),
    "row checker: raises": Broken(stage(BreakingRowChecker())),
    "row checker: raises, optional": Broken(stage(BreakingRowChecker(), mandatory=False)),
    "row checker: never ends": Broken(limited(stage(EndlessRowChecker()))),
    "row checker: says no, on_failure fail": Broken(stage(BreakingRowChecker(raises=False))),
    "fork: raises": Broken(fork(BreakingFork())),
    "fork: never ends": Broken(limited(fork(Endless()))),
    "fork: sends a record nowhere, on_rejected fail": Broken(fork(BreakingFork(raises=False))),
    "writer: can't be opened": Broken(files=broken_files("open")),
    "writer: raises": Broken(files=broken_files("write")),
    "writer: can't prepare": Broken(files=broken_files("prepare")),
    "error branch: its writer can't be opened": Broken(DIVERTS, fault=no_space("mkdir")),
    "error branch: its writer can't write": Broken(DIVERTS, fault=no_space("write")),
    "error branch: its writer can't prepare": Broken(DIVERTS, fault=no_space("rename")),
    "task checker: begin raises": Broken(unlucky_check),
    "task checker: raises": Broken(checks(BreakingTaskChecker())),
    "task checker: raises, optional": Broken(checks(BreakingTaskChecker(), mandatory=False)),
    "task checker: says no": Broken(checks(BreakingTaskChecker(raises=False))),
}
"""Faults that fail work units."""
PLANS = ("source: plan raises",)
NOWHERE = fork(BreakingFork(raises=False), on_rejected="divert")
NEVER_ENOUGH, BREAKING = (Check("it", BreakingTaskChecker(raises)) for raises in (False, True))


@dataclass(frozen=True)
class Endured:
    """A fault that fails nothing, or only an optional branch. It gives the number of records in published and error
    files, and of those in error files.
    """

    flow: Flow = TaskFlow.straight
    records: int = 15
    rejected: int = 0
    source: str = ""


GOES_ON = {
    "extractor: close raises": Endured(source="close"),
    "converter: close raises": Endured(stage(UnluckyConverter("close"))),
    "converter: rejects, on_rejected divert": Endured(stage(RejectingConverter(), "divert"), rejected=1),
    "row checker: says no, on_failure divert": Endured(DIVERTS, rejected=1),
    "row checker: says no, on_failure drop": Endured(stage(BreakingRowChecker(raises=False), "drop"), 14),
    "row checker: says no, optional": Endured(stage(BreakingRowChecker(raises=False), mandatory=False)),
    "fork: sends a record nowhere, on_rejected divert": Endured(NOWHERE, 29, 1),
    "task checker: says no, optional": Endured(checks(BreakingTaskChecker(raises=False), mandatory=False)),
    "optional branch: its converter raises": Endured(optional_right(Stage("it", BreakingConverter())), 30, 4),
    "optional branch: its writer can't be opened": Endured(optional_right(files=broken_files("open")), 30, 4),
    "optional branch: its writer raises": Endured(optional_right(files=broken_files("write")), 30, 4),
    "optional branch: its writer can't prepare": Endured(optional_right(files=broken_files("prepare")), 30, 4),
    "optional branch: its task checker raises": Endured(optional_right(check=BREAKING), 30, 4),
    "optional branch: its task checker says no": Endured(optional_right(check=NEVER_ENOUGH), 30, 4),
}
"""A failing optional branch rejects the records of its work unit only."""


@dataclass(frozen=True)
class Unpublished:
    """A target to which no rename works after `passed` renames.

    `folder` is the dataset's folder there. `files` tells how they are published, and how many are published by then.
    `before`: an earlier run has published three records of another partition. `whole`: as in `Broken`. `live`: the
    number of the dataset's records in the end.
    """

    target: str
    passed: int
    published: int
    folder: str = "a"
    files: FileSink = FILE_A_RECORD
    before: bool = False
    whole: bool = False
    live: int = 12


def replacing(publish: Publish, **settings: Any) -> FileSink:
    return FileSink(compression="none", target_file_bytes=1, publish=publish, **settings)


FOLDER, THIRD, STONE = f"{OUTPUT}/a", f"{OUTPUT}/a/", f"{OUTPUT}/_rejected/a/_"
REPLACE = replacing("replace")
PARTITIONS = replacing("replace_partitions", partition_by=FieldPartition(field="partition"))
COMMIT_STEPS = {
    "publisher: rename of a folder fails": Unpublished(FOLDER, 0, 0, folder=""),
    "publisher: rename of the third file fails": Unpublished(THIRD, 2, 2),
    "publisher: the same, scope job": Unpublished(THIRD, 2, 2, whole=True),
    "publisher: the same, replace": Unpublished(THIRD, 2, 2, files=REPLACE, before=True),
    "publisher: the same, replace_partitions": Unpublished(
        f"{THIRD}partition=0/", 2, 2, "a/partition=0", PARTITIONS, before=True, live=15
    ),
    "publisher: what is replaced can't be told": Unpublished(STONE, 0, 12, files=REPLACE, before=True),
}
FED_AGAIN = {
    "reprocess: converter raises": Broken(stage(BreakingConverter())),
    "reprocess: rename of the file fails": Broken(fault=lambda: fails(errno.EIO, "rename", THIRD)),
    "reprocess: what was fed again can't be told": Broken(fault=lambda: fails(errno.EIO, "rename", STONE)),
}
COMMITTERS: dict[str, CommitOutcome | Exception] = {
    "committer: raises": ConnectionError("the target has gone"),
    "committer: says later": RetryLater("the target is locked"),
    "committer: says never": FailedForGood("the target does not have this column"),
}


def test_page_table_lists_each_fault() -> None:
    assert set(TABLE) == {*PLANS, *FAILS, *GOES_ON, *COMMIT_STEPS, *FED_AGAIN, *COMMITTERS}


def require_as_the_table_says(name: str, world: World, machine: Machine) -> int:
    """Require the watermarks of the table, and return them."""
    stored = world.watermarks(machine)
    reached_positions = [stored[urn].positions.get("0", 0) if urn in stored else 0 for urn in ("a", "b")]
    reached, others = TABLE[name]
    assert reached_positions == [reached[world.policy], others]
    return reached[world.policy] + others


@pytest.mark.parametrize(("name", "policy"), cases(FAILS))
def test_fault_in_a_construct_moves_the_watermark_as_the_table_requires(name: str, policy: CommitPolicy) -> None:
    machine, broken = Machine(), FAILS[name]
    world = World(policy=policy, flow=broken.flow, files=broken.files, job_level=broken.whole)
    if broken.fault is not None:
        machine.faults.append(broken.fault())
    result = go(world, machine, BatchByBatch(SOURCE.datasets, breaks=broken.source))
    machine.faults.clear()
    assert not result.succeeded
    assert {reason.subject for reason in result.reasons.entries} == broken.of
    assert all(reason.text for reason in result.reasons.entries)
    branches = len(broken.flow(SOURCE, FILES).branches)
    read = require_as_the_table_says(name, world, machine)
    audit_result = audit(world, machine)
    assert (audit_result.exact, audit_result.pending) == (not broken.whole, ["b (pending)"] if broken.whole else [])
    assert (audit_result.records, audit_result.duplicates, audit_result.gaps) == (read * branches, 0, 0)
    mended = replace(world, flow=fork(ToAll()) if branches == 2 else TaskFlow.straight, files=FILES)
    assert go(mended, machine, BatchByBatch(SOURCE.datasets)).succeeded
    last = audit(mended, machine)
    assert (last.exact, last.records, last.rejected) == (True, (12 + 3) * branches, 0)


@pytest.mark.parametrize(("name", "policy"), cases(PLANS))
def test_source_that_cannot_list_its_datasets_ends_the_run(name: str, policy: CommitPolicy) -> None:
    machine, world = Machine(), World(policy=policy)
    with pytest.raises(SourceUnavailableError, match="the source can't be asked"):
        go(world, machine, BatchByBatch(SOURCE.datasets, breaks="plan"))
    assert audit(world, machine).records == require_as_the_table_says(name, world, machine)
    assert go(world, machine, BatchByBatch(SOURCE.datasets)).succeeded
    assert (audit(world, machine).exact, audit(world, machine).records) == (True, 12 + 3)


@pytest.mark.parametrize(("name", "policy"), cases(GOES_ON))
def test_harmless_fault_does_not_shorten_the_committed_range(name: str, policy: CommitPolicy) -> None:
    machine, endured = Machine(), GOES_ON[name]
    world = World(policy=policy, flow=endured.flow)
    assert go(world, machine, BatchByBatch(SOURCE.datasets, breaks=endured.source)).succeeded
    require_as_the_table_says(name, world, machine)
    audit_result = audit(world, machine)
    assert (audit_result.exact, audit_result.records, audit_result.rejected) == (
        True,
        endured.records - endured.rejected,
        endured.rejected,
    )


@pytest.mark.parametrize(("name", "policy"), cases(COMMIT_STEPS))
def test_failed_commit_step_leaves_its_sequence_to_replay(name: str, policy: CommitPolicy) -> None:
    broken = COMMIT_STEPS[name]
    machine = with_folders(Machine(), *filter(None, [broken.folder]))
    world, datasets, before = World(policy=policy, files=broken.files, job_level=broken.whole), SOURCE.datasets, 0
    if broken.before:
        assert go(world, machine, ModelSource({"a": ModelDataset({"1": 3})})).succeeded
        datasets, before = {**datasets, "a": ModelDataset({"0": 12, "1": 3}, units=3)}, 3
    machine.faults.append(fails(errno.EIO, "rename", broken.target, first=broken.passed + 1))
    result = go(world, machine, BatchByBatch(datasets))
    machine.faults.clear()
    assert [reason.subject for reason in result.reasons.entries] == ["a"]
    require_as_the_table_says(name, world, machine)
    audit_result = audit(world, machine)
    assert (audit_result.pending, audit_result.records, audit_result.duplicates, audit_result.gaps) == (
        ["a (pending)"],
        3 + before,
        0,
        0,
    )
    assert (
        len([path for path in machine.paths(f"{OUTPUT}/a") if path.endswith(".parquet")]) == broken.published + before
    )
    assert go(world, machine, BatchByBatch(datasets)).succeeded
    last = audit(world, machine)
    assert (last.exact, last.records, last.replaced) == (True, broken.live + 3, 15 - broken.live if before else 0)


@pytest.mark.parametrize(("name", "policy"), cases(FED_AGAIN))
def test_failure_while_reprocessing_ends_among_the_errors_or_in_replay(name: str, policy: CommitPolicy) -> None:
    machine, broken, data = Machine(), FED_AGAIN[name], BatchByBatch(SOURCE.datasets)
    world = World(policy=policy, flow=DIVERTS)
    assert go(world, machine, data).succeeded
    if broken.fault is not None:
        machine.faults.append(broken.fault())
    result = replace(world, flow=broken.flow).reprocess(machine, data, "a")
    machine.faults.clear()
    assert [reason.subject for reason in result.reasons.entries] == ["a"]
    require_as_the_table_says(name, world, machine)
    audit_result, is_sealed = audit(world, machine), broken.fault is not None
    assert (audit_result.exact, audit_result.pending) == (not is_sealed, ["a (pending)"] if is_sealed else [])
    assert (audit_result.records, audit_result.rejected, audit_result.duplicates, audit_result.gaps) == (14, 1, 0, 0)
    mended = replace(world, flow=TaskFlow.straight)
    assert (go if is_sealed else reprocessed)(mended, machine, data).succeeded
    last = audit(mended, machine)
    assert (last.exact, last.records, last.rejected) == (True, 15, 0)


def reprocessed(world: World, machine: Machine, data: ModelSource) -> RunResult:
    return world.reprocess(machine, data, "a")


@pytest.mark.parametrize(("name", "policy"), cases(COMMITTERS))
def test_failing_committer_leaves_its_sequence_to_replay(name: str, policy: CommitPolicy) -> None:
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
    assert "a" in {reason.subject for reason in result.reasons.entries}
    require_as_the_table_says(name, world, machine)
    others = {"b": [f"b/0/{offset}" for offset in range(3)]}
    assert sink.rows == others
    sink.answers = lambda request: None
    if isinstance(outcome, FailedForGood):
        assert statuses(world, machine)["a"] == "quarantined"
        operator_actions.retry(world.store(machine), "a", "person")
    assert run_with(sink, machine, BatchByBatch(SOURCE.datasets), world).succeeded
    assert sink.rows == {"a": [f"a/0/{offset}" for offset in range(12)], **others}
