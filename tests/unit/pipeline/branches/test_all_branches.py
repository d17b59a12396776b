"""Branches: each input record ends in exactly one way in each branch, and file metadata records it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcommit.app.auditing.offsets.branch_coverage import Coverage
from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.converters.projection import Drop
from distcommit.constructs.forks.by_schema import BySchema
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import (
    BranchCounts,
    Converted,
    Converter,
    ForkOperator,
    RowChecker,
    TaskCheck,
    TaskChecker,
)
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.core.interfaces.source import Extraction
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, TaskState, WorkUnit
from distcommit.pipeline.task_attempt import run_work_unit
from distcommit.pipeline.task_flow import DROP, REJECT, Branch, Check, Stage, TaskFlow
from distcommit.schemas.schema_size_limits import MOST_LEVELS
from distcommit.sinks.files.footer import Footer, read_footer, read_records
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.staging import make_area, prepare_bucket
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, QuickClock
from tests.unit.pipeline.test_task_attempt import SCHEMA, ListExtraction, ListSource

VALUES = 6
NEEDS_PRICE = {"type": "cast", "columns": {"price": "int64"}}
Made = tuple[int, ...] | None
"""The output values of a value, or None if it is rejected."""


@dataclass(frozen=True)
class Table(Converter):
    """A converter that maps each value by its table. Odd values come in a piece with an extra column and without
    provenance.
    """

    made: tuple[Made, ...]
    by_parity: bool = False
    makes_several: ClassVar[bool] = True

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        rejected: dict[int, str] = {}
        pieces: dict[int, tuple[list[int], list[int]]] = {0: ([], [])}
        for row, value in enumerate(batch.column("value").to_pylist()):
            outputs = self.made[int(value)]
            if outputs is None:
                rejected[row] = f"no {value.decode()}"
                continue
            for output in outputs:
                rows, values = pieces.setdefault(output % 2 if self.by_parity else 0, ([], []))
                rows.append(row)
                values.append(output)
        for parity, (rows, values) in pieces.items():
            selected = batch.take(pa.array(rows, pa.int64()))
            place = selected.schema.get_field_index("value")
            selected = selected.set_column(place, "value", pa.array([b"%d" % value for value in values], pa.binary()))
            if parity:
                selected = selected.select(["value"]).append_column("odd", pa.array([True] * len(values), pa.bool_()))
            yield Converted(selected, pa.array(rows, pa.int64()), rejected)
            rejected = {}


def with_deep(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same columns and one that is nested too deep to be stored."""
    kind = pa.int64()
    for _ in range(MOST_LEVELS):
        kind = pa.list_(kind)
    return batch.append_column("deep", pa.nulls(batch.num_rows, kind))


class Deep(Converter):
    """A converter that adds such a column."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(with_deep(batch))


class DeepSource(ListSource):
    """A source with such a column."""

    def extract(self, unit: WorkUnit) -> Extraction:
        return DeepExtraction(self)


class DeepExtraction(ListExtraction):
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(with_deep, super().__iter__())


@dataclass(frozen=True)
class OneOf(RowChecker):
    """A row checker that passes some values."""

    good: frozenset[int]

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([int(value) in self.good or None for value in batch.column("value").to_pylist()], pa.bool_())

    def describe(self) -> str:
        return f"one of {sorted(self.good)}"


@dataclass(frozen=True)
class ByValue(ForkOperator):
    """A fork that routes each value by its table."""

    to: Mapping[str, frozenset[int]]

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        values = [int(value) for value in batch.column("value").to_pylist()]
        whole = {name for name in branches if self.to[name] == frozenset(range(VALUES))}
        return {
            name: None if name in whole else pa.array([value in self.to[name] or None for value in values], pa.bool_())
            for name in branches
        }


@dataclass(frozen=True)
class Chain:
    stages: tuple[Stage, ...]

    def of(self, values: list[int]) -> list[int] | None:
        """Return the outcome of a list of values of one record, or None if the record is rejected."""
        for stage in self.stages:
            construct = stage.construct
            outcome: list[int] = []
            for value in values:
                if isinstance(construct, Table):
                    outputs = construct.made[value]
                    if outputs is None:
                        return None
                    outcome += outputs
                elif isinstance(construct, OneOf):
                    if value in construct.good or not stage.is_mandatory:
                        outcome.append(value)
                    elif stage.on_failure == "divert":
                        return None
            values = outcome
        return values


def run_flow(flow: TaskFlow, rows: Sequence[int]) -> tuple[TaskState, SimulatedFileSystem]:
    fs = SimulatedFileSystem(Machine())
    prepare_bucket(fs, "/job/staging", 7, 0)
    unit = WorkUnit("00000_000001", "a", Watermark({"0": 10}), Watermark({"0": 10 + len(rows)}), len(rows))
    identity = AttemptIdentity("run", 7, "a", unit.work_unit_id, uuid.uuid4().hex)
    area = make_area(fs, "/job/staging", "/job/output", 0, identity)
    return run_work_unit(flow, flow.source.open(), unit, area, identity, QuickClock()), fs


def source_of(batches: Sequence[Sequence[int]]) -> ListSource:
    return ListSource(tuple(tuple(b"%d" % value for value in batch) for batch in batches))


@dataclass
class Published:
    """The metadata and the contents of an attempt's files."""

    values: dict[str, Counter[int]] = field(default_factory=dict)
    rejected: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    footers: list[Footer] = field(default_factory=list)


def read(state: TaskState, fs: SimulatedFileSystem) -> Published:
    published = Published()
    for file in state.files:
        path = f"/job/staging/{file.staged_path}"
        footer, rows = read_footer(fs, path), read_records(fs, path)
        assert footer is not None
        assert footer.records == rows.num_rows
        offsets = OffsetSets.from_text(footer.offsets)
        published.footers.append(footer)
        published.coverage.add(footer, offsets)
        if footer.kind == "data":
            published.values.setdefault(footer.branch, Counter()).update(
                int(value) for value in rows["value"].to_pylist()
            )
        else:
            assert {name or "" for name in rows["error_branch"].to_pylist()} == {footer.branch}
            rejections = zip(rows["offset"].to_pylist(), rows["error_construct"].to_pylist(), strict=True)
            published.rejected.setdefault(footer.branch, []).extend(rejections)
            assert all(rows["error_reason"].to_pylist())
    return published


NUMBERS = st.integers(0, VALUES - 1)
MADE = st.one_of(st.none(), st.just(()), *[st.lists(NUMBERS, min_size=n, max_size=n).map(tuple) for n in (1, 1, 2)])
TABLES = st.builds(
    lambda created, parity: Stage("table", Table(created, parity), on_failure="divert"),
    st.tuples(*(MADE | st.just((value,)) for value in range(VALUES))),
    st.booleans(),
)
SOME = st.frozensets(NUMBERS, min_size=VALUES // 2)
CHECKS = st.builds(
    lambda good, mandatory, failure: Stage("check", OneOf(good), mandatory, failure),
    SOME,
    st.booleans(),
    st.sampled_from(["divert", "drop"]),
)
CHAINS = st.lists(st.one_of(TABLES, CHECKS), max_size=2).map(tuple)
BATCHES = st.lists(st.lists(NUMBERS, max_size=8), max_size=3)
WHERE = st.one_of(st.just(frozenset(range(VALUES))), SOME)
FORKS = st.dictionaries(st.sampled_from(["hourly", "daily", "rest"]), st.tuples(WHERE, CHAINS), min_size=1)


ALL = frozenset(range(VALUES))
DIVERTING = Stage("check", OneOf(frozenset({1, 3, 4})), True, "divert")
FILTERING = Stage("table", Table(((),) * VALUES))
DOUBLING = Stage("table", Table(((0,), (1, 2), (1, 3), (), (4, 4), None)), on_failure="divert")


@pytest.mark.thorough
@given(
    shared=CHAINS,
    fork=st.none() | FORKS,
    unmatched=st.sampled_from([REJECT, DROP, "spare"]),
    batches=BATCHES,
    file_bytes=st.sampled_from([1, 1 << 20]),
)
@example((), {"hourly": (ALL, (DIVERTING,)), "daily": (ALL, (DOUBLING, DIVERTING))}, REJECT, [[1, 2, 3], [3, 0]], 1)
@example(
    (DOUBLING, DIVERTING),
    {"hourly": (ALL, ()), "daily": (frozenset({1, 4}), ())},
    REJECT,
    [[0, 1, 2, 3, 4, 5]],
    1 << 20,
)
@example((FILTERING,), {"hourly": (ALL, ()), "daily": (ALL, ())}, DROP, [[1, 2], [3]], 1)
@settings(max_examples=250, deadline=None)
def test_in_each_branch_each_record_is_published_rejected_or_filtered(
    shared: tuple[Stage, ...],
    fork: dict[str, tuple[frozenset[int], tuple[Stage, ...]]] | None,
    unmatched: str,
    batches: list[list[int]],
    file_bytes: int,
) -> None:
    sink = FileSink(compression="none", target_file_bytes=file_bytes)
    if fork is None:
        flow = TaskFlow(source_of(batches), (Branch(sink),), shared)
    else:
        operator = ByValue({name: values for name, (values, _) in fork.items()})
        branches = tuple(Branch(sink, name, chain) for name, (_, chain) in fork.items())
        spare = (Branch(sink, unmatched),) if unmatched == "spare" else ()
        flow = TaskFlow(source_of(batches), (*branches, *spare), shared, operator, "divert", unmatched)
    records = [value for batch in batches for value in batch]
    state, fs = run_flow(flow, records)
    assert state.error == ""
    published = read(state, fs)

    expected: dict[str, Counter[int]] = {}
    outcome: dict[str, dict[int, str]] = {branch.name: {} for branch in flow.branches}
    for offset, value in enumerate(records, 10):
        values = Chain(shared).of([value])
        if values is not None and fork is not None:
            nowhere = [item for item in values if not any(item in operator.to[name] for name in fork)]
            values = None if nowhere and unmatched == REJECT else values
        for branch in flow.branches:
            own = values
            if values is not None and fork is not None:
                sent = [item for item in values if item in operator.to.get(branch.name, ())]
                own = Chain(tuple(branch.stages)).of(nowhere if branch.name == "spare" else sent)
            outcome[branch.name][offset] = "rejected" if own is None else "published" if own else "filtered"
            expected.setdefault(branch.name, Counter()).update(own or ())
    assert {name: counts for name, counts in published.values.items() if counts} == {
        name: counts for name, counts in expected.items() if counts
    }
    for name, rejected in outcome.items():
        sets = published.coverage.branches().get(name)
        by_kind = {
            kind: [o for o, item in rejected.items() if item == kind] for kind in ("published", "rejected", "filtered")
        }
        if sets is None or not published.footers:
            assert not by_kind["published"]
            assert not by_kind["rejected"]
            continue
        assert list(sets.published.offsets("0")) == by_kind["published"]
        assert list(sets.rejected.offsets("0")) == by_kind["rejected"]
        assert list(sets.filtered.offsets("0")) == by_kind["filtered"]
        assert not sets.duplicates.count()
    holes = [hole for result in state.branches for hole in result.holes]
    if records and not published.footers:
        assert [(hole.low, hole.high, hole.is_hole) for hole in holes] == [(10, 10 + len(records), True)]
    else:
        assert not holes
        assert list(published.coverage.covered().offsets("0")) == list(range(10, 10 + len(records)))


def test_records_rejected_by_a_branch_are_in_its_own_error_branch() -> None:
    """Records that all branches reject are in the common error branch, unchanged."""
    fork = ByValue({"hourly": frozenset({1, 2}), "daily": frozenset({2, 3})})
    picky = Stage("picky", Table((None, (1,), None, (3,), (4,), (5,))), on_failure="divert")
    early = Stage("early", OneOf(frozenset({1, 2, 3, 4})), on_failure="divert")
    flow = TaskFlow(
        source_of([[0, 1, 2, 3, 4]]),
        (Branch(FileSink(), "hourly", (picky,)), Branch(FileSink(format="avro"), "daily")),
        (early,),
        fork,
        "divert",
    )
    state, fs = run_flow(flow, range(5))
    published = read(state, fs)
    assert published.rejected == {"": [(10, "early"), (14, "fork")], "hourly": [(12, "picky")]}
    assert published.values == {"hourly": Counter([1]), "daily": Counter([2, 3])}
    assert [(result.branch, result.records_written, result.records_rejected) for result in state.branches] == [
        ("hourly", 1, 0),
        ("daily", 2, 0),
        ("errors", 0, 2),
        ("errors/hourly", 0, 1),
    ]
    folders = {file.final_path.rpartition("/")[0] for file in state.files}
    assert folders == {"a/hourly", "a/daily", "_rejected/a", "_rejected/a/hourly"}
    assert {(c.branch, c.construct, c.records_in, c.records_out, c.rejected, c.filtered) for c in state.constructs} == {
        ("", "early", 5, 5, 1, 0),
        ("hourly", "picky", 2, 1, 1, 0),
    }


class DeclaredSource(ListSource):
    """A source whose columns are known before its first record."""

    @property
    def batch_schema(self) -> pa.Schema:
        return SCHEMA


def test_branch_that_receives_no_record_may_need_columns_that_the_source_does_not_have() -> None:
    fork = ByValue({"hourly": frozenset(range(VALUES)), "unused": frozenset()})
    unused = Branch(FileSink(compression="none"), "unused", (Stage("cast", validated("converter", NEEDS_PRICE)),))
    source = DeclaredSource(source_of([[0, 1, 2]]).batches)
    flow = TaskFlow(source, (Branch(FileSink(compression="none"), "hourly"), unused), fork=fork)
    state, fs = run_flow(flow, range(3))
    assert (state.outcome, state.error) == (TaskOutcome.SUCCEEDED, "")
    assert read(state, fs).values == {"hourly": Counter([0, 1, 2])}


def test_dropped_records_are_counted_as_filtered_by_the_fork() -> None:
    fork = ByValue({"hourly": frozenset({1, 2}), "daily": frozenset({2, 3})})
    branches = (Branch(FileSink(compression="none"), "hourly"), Branch(FileSink(compression="none"), "daily"))
    flow = TaskFlow(source_of([[0, 1, 2, 3], [4, 5]]), branches, fork=fork, unmatched=DROP)
    state, fs = run_flow(flow, [0, 1, 2, 3, 4, 5])
    assert (state.outcome, state.error) == (TaskOutcome.SUCCEEDED, "")
    assert [(item.construct, item.records_in, item.records_out, item.filtered) for item in state.constructs] == [
        ("fork", 6, 4, 3)
    ]
    published = read(state, fs)
    assert published.rejected == {}
    assert published.values == {"hourly": Counter([1, 2]), "daily": Counter([2, 3])}


@dataclass(frozen=True)
class Scribbling(Converter):
    """A converter that writes into its input, and ignores that it can't."""

    view: Callable[[pa.Array], npt.NDArray[np.int64]]

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        offsets = self.view(batch.column("offset"))
        with pytest.raises(ValueError, match="read-only"):
            offsets[:] = 0
        yield Converted(batch)


@pytest.mark.parametrize("view", [pa.Array.to_numpy, np.asarray, np.from_dlpack])
@pytest.mark.parametrize("first", [True, False])
def test_converter_of_one_branch_cannot_change_the_records_of_another(
    view: Callable[[pa.Array], npt.NDArray[np.int64]], first: bool
) -> None:
    """All branches share the same memory, of which numpy receives read-only views."""
    own, other = Branch(FileSink(), "own", (Stage("own", Scribbling(view)),)), Branch(FileSink(), "other")
    branches, fork = (own, other) if first else (other, own), ByValue({"own": ALL, "other": ALL})
    state, fs = run_flow(TaskFlow(source_of([[1, 2, 3]]), branches, (), fork), range(3))
    assert state.error == ""
    offsets_by_file = [
        read_records(fs, f"/job/staging/{file.staged_path}")["offset"].to_pylist() for file in state.files
    ]
    assert offsets_by_file == [[10, 11, 12], [10, 11, 12]]


@pytest.mark.parametrize("where", ["fork", "check", "table"])
def test_rejected_record_fails_the_work_unit_if_the_job_requires_it(where: str) -> None:
    fork = ByValue({"hourly": frozenset({1, 2})})
    table = Stage("table", Table(((0,), None if where == "table" else (1,), (2,), (3,), (4,), (5,))), on_failure="fail")
    good = {1} if where == "check" else {1, 2, 3}
    check = Stage("check", OneOf(frozenset(good)), on_failure="fail")
    flow = TaskFlow(source_of([[1, 2, 3]]), (Branch(FileSink(), "hourly"),), (table, check), fork, "fail")
    state, _ = run_flow(flow, range(3))
    assert (state.outcome, state.files) == (TaskOutcome.FAILED, ())
    assert f"a record is rejected [construct={where}, dataset=a, work_unit=00000_000001]" in state.error


def test_optional_checker_failures_are_only_counted() -> None:
    check = Stage("check", OneOf(frozenset({1})), is_mandatory=False, on_failure="fail")
    state, fs = run_flow(TaskFlow(source_of([[1, 2, 3]]), (Branch(FileSink()),), (check,)), range(3))
    assert read(state, fs).values == {"main": Counter([1, 2, 3])}
    assert [(c.noted, c.rejected, c.records_out) for c in state.constructs] == [(2, 0, 3)]


def test_constructs_count_filtered_and_rejected_records() -> None:
    table = Stage("table", Table((None, (), (2, 2), (3,), (4,), (5,))), on_failure="divert")
    drop = Stage("check", OneOf(frozenset({2, 4})), on_failure="drop")
    state, fs = run_flow(TaskFlow(source_of([[0, 1, 2, 3, 4]]), (Branch(FileSink()),), (table, drop)), range(5))
    counts = [(c.construct, c.records_in, c.records_out, c.rejected, c.filtered) for c in state.constructs]
    assert counts == [("table", 5, 4, 1, 1), ("check", 4, 3, 0, 1)]
    (data, _) = read(state, fs).footers
    assert dict(data.filtered_by) == {"table": 1, "check": 1}


@dataclass
class AtMost(TaskChecker, TaskCheck):
    """A task checker that passes if it has seen at most so many records."""

    most: int
    seen: int = 0
    counts: list[BranchCounts] = field(default_factory=list)

    def begin(self) -> TaskCheck:
        self.seen = 0
        return self

    def inspect(self, batch: pa.RecordBatch) -> None:
        self.seen += batch.num_rows

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        self.counts.append(counts)
        return self.seen <= self.most, f"at most {self.most}, found {self.seen}"


@pytest.mark.parametrize("in_error_branch", [False, True])
def test_column_nested_too_deep_to_be_read_again_is_not_written(in_error_branch: bool) -> None:
    values, dropped = ((b"0", b"1"),), Stage("drop", Drop.model_validate({"type": "drop", "columns": ["deep"]}))
    check = Stage("check", OneOf(frozenset({1})), on_failure="divert")
    if in_error_branch:
        flow = TaskFlow(DeepSource(values), (Branch(FileSink(format="avro")),), (dropped, check))
    else:
        flow = TaskFlow(ListSource(values), (Branch(FileSink()),), (Stage("deep", Deep()),))
    state, _ = run_flow(flow, range(2))
    assert (state.outcome, state.files) == (TaskOutcome.FAILED, ())
    assert "COLUMN_UNSUPPORTED: a column is nested too deep [column=deep]" in state.error


@pytest.mark.parametrize(("most", "mandatory", "good"), [(3, True, True), (2, True, False), (2, False, True)])
def test_mandatory_task_check_decides_and_an_optional_one_reports(most: int, mandatory: bool, good: bool) -> None:
    checker = AtMost(most)
    table = Stage("table", Table((None, (1,), (), (3, 3), (4,), (5,))), on_failure="divert")
    flow = TaskFlow(
        source_of([[0, 1, 2, 3], []]), (Branch(FileSink(), checks=(Check("at_most", checker, mandatory),)),), (table,)
    )
    state, _ = run_flow(flow, range(4))
    assert checker.counts == [BranchCounts(read=4, written=3, rejected=1, filtered=1)]
    assert (state.outcome is TaskOutcome.SUCCEEDED, bool(state.files)) == (good, good)
    (outcome,) = state.branches[0].checks
    assert (outcome.checker, outcome.passed, outcome.mandatory) == ("at_most", most >= 3, mandatory)
    if not good:
        assert "QUALITY_CHECK_FAILED" in state.error
        assert "main: at_most: at most 2, found 3" in state.error


@dataclass(frozen=True)
class Liar(Converter):
    """A converter that returns contradictory results."""

    what: str

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        answers: dict[str, Any] = {
            "fewer records without rows": Converted(batch.slice(1)),
            "rows below 0": Converted(batch, pa.array([-1, 0, 1])),
            "rows above": Converted(batch, pa.array([0, 1, 3])),
            "too few rows": Converted(batch, pa.array([0, 1])),
            "null rows": Converted(batch, pa.array([0, 1, None], pa.int64())),
            "rejected beyond": Converted(batch, None, {3: "no"}),
            "several": Converted(batch, pa.array([0, 0, 1])),
        }
        yield answers[self.what]


@pytest.mark.parametrize(
    "what",
    [
        "fewer records without rows",
        "rows below 0",
        "rows above",
        "too few rows",
        "null rows",
        "rejected beyond",
        "several",
    ],
)
def test_contradictory_converter_result_fails_the_work_unit(what: str) -> None:
    flow = TaskFlow(source_of([[1, 2, 3]]), (Branch(FileSink()),), (Stage("liar", Liar(what)),))
    state, _ = run_flow(flow, range(3))
    assert (state.outcome, state.files) == (TaskOutcome.FAILED, ())
    assert "a construct breaks its contract [construct=liar" in state.error


@dataclass(frozen=True)
class ByOwnNames(ByValue):
    """A fork that names branches whether or not they exist."""

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return super().choose(batch, list(self.to))


@pytest.mark.parametrize("on_rejected", ["divert", "fail"])
def test_fork_that_names_an_unknown_branch_fails_the_work_unit(on_rejected: Any) -> None:
    """This includes records that also go to a known branch: they would be missing from the unknown one."""
    fork = ByOwnNames({"hourly": ALL, "dayly": frozenset({2})})
    flow = TaskFlow(source_of([[1, 2, 3]]), (Branch(FileSink(), "hourly"),), (), fork, on_rejected)
    state, _ = run_flow(flow, range(3))
    assert (state.outcome, state.files) == (TaskOutcome.FAILED, ())
    assert "a fork operator breaks its contract [branch=dayly" in state.error
    assert "expected one of the branches hourly; found no branch of the job" in state.error


def test_incompatible_constructs_are_reported_before_anything_is_read() -> None:
    @dataclass(frozen=True)
    class Known(ListSource):
        @property
        def batch_schema(self) -> pa.Schema:
            return pa.schema([("value", pa.binary())])

    class Needs(Table):
        def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
            raise ConfigurationError("no column 'price'")

    flow = TaskFlow(Known(()), (Branch(FileSink(), "hourly", (Stage("needs", Needs(())),)),), ())
    with pytest.raises(ConfigurationError, match=r"needs of branch hourly can take, from the source.*price"):
        flow.check()
    TaskFlow(Known(()), (Branch(FileSink()),), (Stage("table", Table(())), Stage("needs", Needs(())))).check()
    replace(
        flow, fork=BySchema(type="by_schema", requires={"hourly": frozenset({"price"})})
    ).check()  # no records go there
