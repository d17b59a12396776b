"""Prefixes of failed attempts: whole batches, the same ones in all branches, as if the read had ended there."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from distcommit.constructs.checkers.record_counts import RowCount
from distcommit.core.errors import SourceError
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck, TaskChecker
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.core.interfaces.source import Extraction
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import SkippedRange, TaskOutcome, TaskState, WorkUnit
from distcommit.pipeline.task_attempt import run_work_unit
from distcommit.pipeline.task_flow import Branch, Check, Stage, TaskFlow
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.staging import make_area, prepare_bucket
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, QuickClock, fails
from tests.unit.pipeline.branches.test_all_branches import ByValue, OneOf, Table
from tests.unit.pipeline.test_task_attempt import SCHEMA, ListSource, NotingSink

UNIT = WorkUnit("00000_000001", "a", Watermark({"0": 10}), Watermark({"0": 99}), 4)
ALL, LEFT = frozenset(range(6)), frozenset({0, 1, 2, 5})
TABLE = Table(((0,), (1, 1), (), None, (4,), (5,)))
"""0 and 4 stay, 1 is doubled, 2 is filtered, 3 is rejected; 5 is good, until branch y has it."""


def forked(source: ListSource, checks: Sequence[Check] = ()) -> TaskFlow:
    files = FileSink(compression="none")
    refuses_5 = Stage("refuses_5", OneOf(ALL - {5}), on_failure="fail")
    diverts_4 = Stage("diverts_4", OneOf(ALL - {4}), on_failure="divert")
    branches = (Branch(files, "x", checks=checks), Branch(files, "y", (diverts_4, refuses_5)))
    return TaskFlow(source, branches, (Stage("table", TABLE, on_failure="divert"),), ByValue({"x": LEFT, "y": ALL}))


@dataclass(frozen=True)
class HoleSource(ListSource):
    """A source without a record at the offset before each batch, which it reports with the batch. `untold`: the batches
    after which it does not know its position. `says`: a fixed position to report.
    """

    untold: frozenset[int] = field(default_factory=frozenset)
    says: int | str | None = None

    def extract(self, unit: WorkUnit) -> Extraction:
        return _HoleExtraction(self)


class _HoleExtraction(Extraction):
    def __init__(self, source: HoleSource) -> None:
        self.source, self.offset, self.batch, self.left = source, 10, 0, list[SkippedRange]()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for values in self.source.batches:
            self.batch += 1
            if self.source.says is None:
                self.left.append(SkippedRange("0", self.offset, self.offset + 1, "no record", True))
            offsets = range(self.offset + 1, self.offset + 1 + len(values))
            self.offset = offsets.stop
            yield pa.record_batch([[0] * len(values), list(offsets), list(values)], schema=SCHEMA)
        if self.source.error is not None:
            raise self.source.error

    def actual_high(self) -> Watermark:
        if self.batch in self.source.untold:
            raise SourceError("there is no position here")
        return Watermark({"0": self.offset if self.source.says is None else self.source.says})

    def holes(self) -> list[SkippedRange]:
        skippeds, self.left = self.left, []
        return skippeds

    def bytes_read(self) -> int:
        return 100 * self.batch


def batches_of(values: Sequence[Sequence[int]]) -> tuple[tuple[bytes, ...], ...]:
    return tuple(tuple(b"%d" % value for value in batch) for batch in values)


def read(
    source: ListSource,
    *,
    flow: Callable[[ListSource], TaskFlow] = forked,
    machine: Machine | None = None,
    keeps_prefix: bool = True,
    unit: WorkUnit = UNIT,
) -> tuple[TaskState, SimulatedFileSystem]:
    fs = SimulatedFileSystem(machine or Machine())
    prepare_bucket(fs, "/job/staging", 7, 0)
    identity = AttemptIdentity("run", 7, "a", unit.work_unit_id, uuid.uuid4().hex)
    area = make_area(fs, "/job/staging", "/job/output", 0, identity)
    task_flow = flow(source)
    return run_work_unit(
        task_flow, source.open(), unit, area, identity, QuickClock(), keeps_prefix=keeps_prefix
    ), fs  # fmt: skip


def kept(attempt: tuple[TaskState, SimulatedFileSystem]) -> dict[str, Any]:
    """Return an attempt's whole state without names and times."""
    state, fs = attempt
    branches: dict[str, Any] = {}
    for result in state.branches:
        files = []
        for file in result.files:
            footer, rows = read_footer(fs, f"/job/staging/{file.staged_path}"), None
            assert footer is not None
            rows = read_records(fs, f"/job/staging/{file.staged_path}").to_pylist()
            files.append((rows, footer.offsets, footer.holes, footer.filtered, footer.filtered_by))
        counts = (result.records_written, result.records_rejected, result.holes, result.checks, result.content_sum)
        branches[result.branch] = (files, counts)
    constructs = [{**asdict(construct_counts), "seconds": 0} for construct_counts in state.constructs]
    return {"branches": branches, "constructs": constructs, "high": state.actual_high, "read": state.records_read}


VALUES = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@pytest.mark.thorough
@settings(deadline=None)
@given(st.lists(VALUES, max_size=3), VALUES, st.integers(0, 4))
def test_record_that_fails_the_work_unit_leaves_the_state_of_reading_up_to_the_batch_before(
    before: list[list[int]], last: list[int], place: int
) -> None:
    failing = [*last[:place], 5, *last[place:]]
    attempt = read(HoleSource(batches_of([*before, failing, [0]])))
    if not before:
        assert (attempt[0].outcome, attempt[0].actual_high, attempt[0].files) == (TaskOutcome.FAILED, UNIT.low, ())
        return
    assert (attempt[0].outcome, attempt[0].error[:15]) == (TaskOutcome.PARTIAL, "RECORD_REJECTED")
    assert attempt[0].bytes_read == 100 * len(before)
    assert kept(attempt) == kept(read(HoleSource(batches_of(before))))


@pytest.mark.thorough
@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3))
def test_failing_source_keeps_all_batches_that_it_delivered(before: list[list[int]]) -> None:
    attempt = read(HoleSource(batches_of(before), SourceError("lost")))
    assert (attempt[0].outcome, attempt[0].error) == (TaskOutcome.PARTIAL, "SOURCE_FAILED: lost")
    assert kept(attempt) == kept(read(HoleSource(batches_of(before))))


def straight(source: ListSource) -> TaskFlow:
    return TaskFlow.straight(source, FileSink(compression="none"))


def test_flow_without_constructs_keeps_the_same_prefix() -> None:
    attempt = read(HoleSource(batches_of([[0, 1], [2]]), SourceError("lost")), flow=straight)
    assert attempt[0].outcome is TaskOutcome.PARTIAL
    assert kept(attempt) == kept(read(HoleSource(batches_of([[0, 1], [2]])), flow=straight))


def test_policy_without_prefixes_keeps_nothing() -> None:
    state, _ = read(HoleSource(batches_of([[0], [5]])), keeps_prefix=False)
    assert (state.outcome, state.files, state.actual_high) == (TaskOutcome.FAILED, (), UNIT.low)


@pytest.mark.parametrize(("untold", "batches", "outcome"), [(1, 2, "partial"), (2, 2, "failed"), (1, 1, "failed")])
def test_source_that_does_not_report_its_position_keeps_nothing(untold: int, batches: int, outcome: str) -> None:
    state, _ = read(HoleSource(batches_of([[0]] * batches), SourceError("lost"), untold=frozenset({untold})))
    assert state.outcome == outcome
    assert bool(state.files) == (outcome == "partial")


def test_batch_that_only_one_branch_has_taken_is_in_no_branch() -> None:
    machine = Machine()
    made = Machine()
    read(HoleSource(batches_of([[0], [0], [0]])), machine=made)
    writes = [op for op in made.made if op.kind == "create" and "/y/" in op.path]
    assert writes, "the second branch has separate files"
    machine.faults.append(fails(errno.ENOSPC, "create", "/y/"))
    state, _ = read(HoleSource(batches_of([[2], [0], [0]])), machine=machine)
    assert (state.outcome, state.files, state.actual_high) == (TaskOutcome.FAILED, (), UNIT.low)
    assert "ENOSPC" in state.error or "No space" in state.error
    assert not [op for op in machine.made if op.kind in ("unlink", "rmdir")]


def test_prefix_that_fails_a_mandatory_check_is_not_kept() -> None:
    def checked(source: ListSource) -> TaskFlow:
        return forked(source, [Check("row_count", RowCount(type="row_count", min=2))])

    short, _ = read(HoleSource(batches_of([[0], [5]])), flow=checked)
    assert (short.outcome, short.files) == (TaskOutcome.FAILED, ())
    assert "RECORD_REJECTED" in short.error, "the reason of the attempt, not the reason for keeping nothing"
    long, _ = read(HoleSource(batches_of([[0], [0], [5]])), flow=checked)
    assert long.outcome is TaskOutcome.PARTIAL
    assert [check.passed for result in long.branches for check in result.checks] == [True]


@dataclass
class Odd(TaskChecker, TaskCheck):
    """A converter that raises at the value 1 once, and passes when it is called again."""

    asked: int = 0

    def begin(self) -> TaskCheck:
        return self

    def inspect(self, batch: pa.RecordBatch) -> None:
        if b"1" in batch.column("value").to_pylist():
            raise ZeroDivisionError

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        self.asked += 1
        return self.asked > 1, "asked once"


def test_batch_taken_by_one_branch_is_not_kept_although_the_other_writer_could_continue() -> None:
    odd = Odd(asked=1)
    state, _ = read(
        HoleSource(batches_of([[0], [1]])),
        flow=lambda source: TaskFlow(
            source,
            (Branch(FileSink(), "x"), Branch(FileSink(), "y", checks=(Check("odd", odd),))),
            fork=ByValue({"x": ALL, "y": ALL}),
        ),
    )
    assert (state.outcome, state.error, state.files) == (TaskOutcome.FAILED, "ZeroDivisionError: ", ())


def noted(sink: NotingSink, source: HoleSource) -> TaskState:
    state, _ = read(source, flow=lambda unit_source: TaskFlow.straight(unit_source, sink))
    return state


@pytest.mark.parametrize("where", ["write", "prepare"])
def test_only_abort_is_called_on_a_writer_after_an_error(where: str) -> None:
    sink = NotingSink(fails=where)
    state = noted(sink, HoleSource(batches_of([[0], [0]])))
    assert (state.outcome, state.branches[0].infos) == (TaskOutcome.FAILED, ())
    before = ["write 1"] if where == "write" else ["write 1", "write 1", "prepare"]
    assert sink.notes == ["open", *before, "abort"]


def test_writers_are_aborted_in_the_reverse_order_of_their_opening() -> None:
    order: list[str] = []

    class Ordered(NotingSink):
        def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
            order.append(f"open {attempt.branch}")
            return Aborted(attempt.branch)

    class Aborted(SinkWriter):
        def __init__(self, branch: str) -> None:
            self.branch = branch

        def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
            raise ZeroDivisionError

        def prepare_commit(self) -> Prepared:
            return Prepared()

        def abort(self) -> None:
            order.append(f"abort {self.branch}")

    branches = tuple(Branch(Ordered(), name) for name in "xyz")
    read(
        HoleSource(batches_of([[0]])),
        flow=lambda source: TaskFlow(source, branches, (), ByValue(dict.fromkeys("xyz", ALL))),
    )
    assert order == [*(f"open {name}" for name in "xyz"), *(f"abort {name}" for name in "zyx")]


def test_prefix_goes_to_a_custom_sink_as_usual() -> None:
    sink = NotingSink()
    state = noted(sink, HoleSource(batches_of([[0], [0, 0]]), SourceError("lost")))
    assert (state.outcome, state.branches[0].infos) == (TaskOutcome.PARTIAL, ("info", {"n": 1}))
    assert sink.notes == ["open", "write 1", "write 2", "prepare"]


def test_position_outside_the_work_unit_keeps_nothing() -> None:
    error = SourceError("lost")
    for source in (HoleSource(batches_of([[0] * 95]), error), HoleSource(batches_of([[0], [5]]), says=10)):
        state, _ = read(source)
        assert (state.outcome, state.files, state.actual_high) == (TaskOutcome.FAILED, (), UNIT.low)


def test_position_that_cannot_be_stored_keeps_nothing() -> None:
    unit = replace(UNIT, low=Watermark({"0": "a"}), expected_high=Watermark({"0": "c"}))
    for says, outcome in (("b", TaskOutcome.PARTIAL), ("b\udcff", TaskOutcome.FAILED)):
        source = HoleSource(batches_of([[0], [5]]), says=says)
        state, _ = read(source, unit=unit)
        assert (state.outcome, bool(state.files)) == (outcome, outcome is TaskOutcome.PARTIAL)
