"""Optional branches: if one fails before the seal, its records go to its error branch and the other branches commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.job_file.sections.flow_settings import ForkSettings
from distcommit.core.interfaces.constructs import BranchCounts, Converted, Converter, RowChecker, TaskCheck, TaskChecker
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, Sink, SinkWriter, StagingArea
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import SkippedRange, WorkUnit
from distcommit.engine.driver.run import RunResult
from distcommit.pipeline.task_flow import Branch, Check, Stage, TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import ByValue, NoneOf, TurningAway
from tests.simulation.world import SimulatedFileSystem, World
from tests.unit.engine.driver.machines import OUTPUT, Machine, go, source, states
from tests.unit.engine.driver.test_custom_sinks import MemorySink, MemoryWriter

DATA = source(a=4)
FILES = FileSink(compression="none")


@dataclass(frozen=True)
class Raising(Converter, RowChecker):
    """A converter that raises when a work unit begins, at any batch, or at a batch with a value."""

    begins: bool = False
    value: str = ""

    def begin_work_unit(self, unit: WorkUnit) -> None:
        if self.begins:
            raise LookupError(f"nothing of {unit.dataset_urn}")

    def _look(self, batch: pa.RecordBatch) -> None:
        if not self.value or self.value in batch.column("value").to_pylist():
            raise LookupError("nothing of it")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        self._look(batch)
        yield Converted(batch)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self._look(batch)
        return pa.array([True] * batch.num_rows)

    def describe(self) -> str:
        return "something"


@dataclass(frozen=True)
class RecordingNothingStorable(Raising):
    """A converter that converts, and then records a property that cannot be stored."""

    value: str = "none"

    def task_properties(self) -> Any:
        return {"list": []}


@dataclass(frozen=True)
class RaisingChecker(RowChecker):
    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        raise LookupError("nothing of it")

    def describe(self) -> str:
        return "something"


@dataclass(frozen=True)
class RaisingCheck(TaskChecker, TaskCheck):
    """A row checker that raises there, or a task checker that never passes."""

    where: str

    def _reach(self, where: str) -> None:
        if where == self.where:
            raise LookupError("nothing of it")

    def begin(self) -> TaskCheck:
        self._reach("begin")
        return self

    def inspect(self, batch: pa.RecordBatch) -> None:
        self._reach("see")

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        self._reach("outcome")
        return False, "never enough"


@dataclass
class RaisingSink(MemorySink):
    """A custom sink whose writer raises there."""

    where: str = ""

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        if self.where == "open":
            raise LookupError("nothing of it")
        return RaisingWriter(where=self.where)


@dataclass
class RaisingWriter(MemoryWriter):
    where: str = ""

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        super().write(batch, origins)
        if self.where == "write":
            raise LookupError("nothing of it")

    def note_holes(self, holes: object) -> None:
        if self.where == "holes":
            raise LookupError("nothing of it")

    def prepare_commit(self) -> Prepared:
        if self.where == "prepare":
            raise LookupError("nothing of it")
        return Prepared([object()]) if self.where == "infos" else super().prepare_commit()


def flow_of(*branches: Branch) -> Callable[[Source, Sink], TaskFlow]:
    """Build a flow that sends all records to all branches."""
    return lambda source, sink: TaskFlow(source, branches, fork=ByValue())


def optional(*stages: Stage, name: str = "late", sink: Sink = FILES, checks: Sequence[Check] = ()) -> Branch:
    return Branch(sink, name, stages, checks, optional=True)


GOOD = Branch(FILES, "good")
FAILING: dict[str, tuple[str, Branch]] = {
    "a converter that raises": ("own", optional(Stage("own", Raising()))),
    "at one of several batches": (
        "own",
        optional(Stage("first", NoneOf(frozenset())), Stage("own", Raising(value="a/0/3"))),
    ),
    "a property that cannot be stored": ("own", optional(Stage("own", RecordingNothingStorable()))),
    "as it begins": ("own", optional(Stage("own", Raising(begins=True)))),
    "a row checker that raises": ("rows", optional(Stage("rows", RaisingChecker()))),
    "a record that is to fail it": ("rows", optional(Stage("rows", NoneOf(frozenset({"a/0/2"})), on_failure="fail"))),
    "a task checker that says no": ("says", optional(checks=(Check("says", RaisingCheck("never")),))),
    **{
        f"a task checker at {where}": ("says", optional(checks=(Check("says", RaisingCheck(where), False),)))
        for where in ("begin", "see", "outcome")
    },
    **{
        f"a sink at {where}": ("memory", optional(sink=RaisingSink(where=where)))
        for where in ("open", "write", "prepare", "infos")
    },
}


def audit(world: World, machine: Machine) -> AuditResult:
    return audit_store(world.store(machine), DATA.provenance, deep=True)


def in_branches(audit_result: AuditResult) -> dict[str, tuple[int, int]]:
    """Return for each branch how many records are published, error files included, and how many of them are
    rejected.
    """
    return {row.branch: (row.published + row.rejected, row.rejected) for row in audit_result.partitions}


def errors(machine: Machine, folder: str) -> list[tuple[str, str, str]]:
    """Return the records of an error branch, each with the construct that rejected it and the reason."""
    fs = SimulatedFileSystem(machine)
    rows = [row for path in machine.paths(f"{OUTPUT}/_rejected/{folder}") for row in read_records(fs, path).to_pylist()]
    return sorted((row["value"], row["error_construct"], row["error_reason"]) for row in rows)


def all_errors(result: RunResult) -> list[str]:
    return [note.text for note in result.notes.entries if note.kind == "branch"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("why", FAILING)
def test_optional_branch_that_fails_rejects_its_records_and_the_others_commit(why: str, first: bool) -> None:
    construct, late = FAILING[why]
    world = World(flow=flow_of(late, GOOD) if first else flow_of(GOOD, late))
    machine = Machine()
    result = go(world, machine, DATA)
    assert result.succeeded, result
    assert in_branches(audit(world, machine)) == {"good": (4, 0), "late": (4, 4)}
    assert audit(world, machine).exact
    error_rows = errors(machine, "a/late")
    assert [value for value, _, _ in error_rows] == [f"a/0/{n}" for n in range(4)]
    assert {construct for _, construct, _ in error_rows} == {construct}
    ((reason,), (note,)) = {reason for _, _, reason in error_rows}, all_errors(result)
    assert note == f"late: {construct}: {reason}"
    ((failure),) = result.totals.flow.failures
    assert (failure.branch, failure.construct, failure.work_units) == ("late", construct, 1)
    assert states(world, machine)["a"].status is DatasetStatus.IDLE


@pytest.mark.parametrize("why", FAILING)
def test_mandatory_branch_that_fails_fails_the_work_unit(why: str) -> None:
    _, late = FAILING[why]
    world = World(flow=flow_of(GOOD, replace(late, optional=False)))
    machine = Machine()
    result = go(world, machine, DATA)
    assert not result.succeeded
    assert not result.totals.flow.failures
    assert machine.paths(f"{OUTPUT}/a") == {}
    assert states(world, machine).get("a") is None or states(world, machine)["a"].watermark is None


def test_several_optional_branches_that_fail_one_after_another_leave_the_working_one_committed() -> None:
    memory = MemorySink()
    branches = (
        optional(Stage("one", Raising(begins=True)), name="one"),
        optional(sink=memory, name="two"),
        optional(name="three", sink=RaisingSink(where="prepare")),
        GOOD,
    )
    world = World(flow=flow_of(*branches))
    machine = Machine()
    result = go(world, machine, DATA)
    assert result.succeeded
    assert memory.rows == {"a": [f"a/0/{n}" for n in range(4)]}
    assert (len(errors(machine, "a/one")), len(errors(machine, "a/three"))) == (4, 4)
    assert [failure.branch for failure in result.totals.flow.failures] == ["one", "three"]


def test_failing_mandatory_branch_decides_over_a_failing_optional_one() -> None:
    broken = replace(GOOD, stages=(Stage("own", Raising()),))
    machine = Machine()
    result = go(World(flow=flow_of(optional(Stage("own", Raising())), broken)), machine, DATA)
    assert not result.succeeded
    assert (machine.paths(f"{OUTPUT}/a"), machine.paths(f"{OUTPUT}/_rejected")) == ({}, {})


def test_next_attempt_begins_with_all_branches() -> None:
    """An immediate failure of a mandatory branch is no reason to reject the records of the others."""

    @dataclass
    class Once(Converter):
        left: int = 1

        def begin_work_unit(self, unit: WorkUnit) -> None:
            self.left -= 1
            if self.left >= 0:
                raise LookupError("not yet")

        def convert(
            self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit
        ) -> Iterator[Converted]:
            yield Converted(batch)

    branches = (optional(Stage("once", Once())), replace(GOOD, stages=(Stage("once", Once()),)))
    world = World(flow=flow_of(*branches), task_attempts=2)
    machine = Machine()
    assert go(world, machine, DATA).succeeded
    assert in_branches(audit(world, machine)) == {"good": (4, 0), "late": (4, 0)}


def test_work_unit_that_fails_half_way_without_the_optional_branch_commits_a_prefix() -> None:
    world = World(flow=flow_of(GOOD, optional(Stage("own", Raising()))), policy=CommitPolicy.PARTIAL)
    machine = Machine()
    assert not go(world, machine, ModelSource({"a": ModelDataset({"0": 4}, bad={"0": 2})})).succeeded
    assert world.watermarks(machine) == {"a": Watermark({"0": 2})}
    assert in_branches(audit(world, machine)) == {"good": (2, 0), "late": (2, 2)}
    assert go(world, machine, DATA).succeeded
    assert in_branches(audit(world, machine)) == {"good": (4, 0), "late": (4, 4)}
    assert audit(world, machine).exact


def test_optional_branch_fails_only_for_the_work_unit_of_the_failure() -> None:
    data = ModelSource({"a": ModelDataset({"0": 6}, units=3), "b": ModelDataset({"0": 2})})
    world = World(flow=flow_of(GOOD, optional(Stage("own", Raising(value="a/0/3")))))
    machine = Machine()
    result = go(world, machine, data)
    assert result.succeeded
    assert [value for value, _, _ in errors(machine, "a/late")] == ["a/0/2", "a/0/3"]
    audit_result = audit(world, machine)
    assert audit_result.exact
    assert {(row.dataset, row.branch): row.rejected for row in audit_result.partitions} == {
        ("a", "good"): 0,
        ("a", "late"): 2,
        ("b", "good"): 0,
        ("b", "late"): 0,
    }


def test_error_branch_records_the_holes_that_the_failed_branch_cannot() -> None:
    """Holes and filtered records are normally recorded by the first branch's writer."""
    data = ModelSource({"a": ModelDataset({"0": 4}, holes={"0": frozenset({1})})})
    drop = Stage("drop", NoneOf(frozenset({"a/0/2"})), on_failure="drop")

    def flow(source: Source, sink: Sink) -> TaskFlow:
        return TaskFlow(source, (optional(Stage("own", Raising())), Branch(MemorySink(), "memory")), (drop,), ByValue())

    world = World(flow=flow)
    machine = Machine()
    assert go(world, machine, data).succeeded
    (path,) = machine.paths(f"{OUTPUT}/_rejected/a/late")
    footer = read_footer(SimulatedFileSystem(machine), path)
    assert footer is not None
    assert (footer.records, set(footer.filtered)) == (2, {"late", "memory"})
    holes = [skip for skip in states(world, machine)["a"].skipped if isinstance(skip, SkippedRange)]
    assert footer.holes or holes


def test_log_records_filtered_counts_when_no_file_is_written() -> None:
    drop = Stage("drop", NoneOf(frozenset(f"a/0/{n}" for n in range(4))), on_failure="drop")

    def flow(source: Source, sink: Sink) -> TaskFlow:
        late = optional(Stage("own", Raising(begins=True)))
        return TaskFlow(source, (late, Branch(MemorySink(), "memory")), (drop,), ByValue())

    world = World(flow=flow)
    machine = Machine()
    assert go(world, machine, DATA).succeeded
    assert [(skip.low, skip.high, skip.is_hole) for skip in states(world, machine)["a"].skipped] == [(0, 4, True)]


def test_hole_that_its_writer_rejects_fails_the_branch() -> None:
    data = ModelSource({"a": ModelDataset({"0": 4}, holes={"0": frozenset({1})})})
    world = World(flow=flow_of(optional(sink=RaisingSink(where="holes")), GOOD))
    machine = Machine()
    assert go(world, machine, data).succeeded
    assert len(errors(machine, "a/late")) == 3
    assert audit(world, machine).exact


def test_reprocessed_records_of_an_optional_branch_may_fail_again() -> None:
    machine = Machine()
    broken = World(flow=flow_of(optional(Stage("own", Raising())), GOOD))
    mended = World(flow=flow_of(optional(), GOOD))
    assert go(broken, machine, DATA).succeeded
    again = broken.reprocess(machine, DATA, "a")
    assert again.succeeded, again
    assert in_branches(audit(broken, machine)) == {"good": (4, 0), "late": (4, 4)}
    assert audit(broken, machine).superseded_files == 2, "a data file and its tombstone"
    assert mended.reprocess(machine, DATA, "a").succeeded
    assert in_branches(audit(broken, machine)) == {"good": (4, 0), "late": (4, 0)}
    assert go(mended, machine, DATA).succeeded
    assert go(mended, machine, DATA).succeeded
    assert (audit(broken, machine).exact, audit(broken, machine).superseded_files) == (True, 0)


def test_reprocessed_records_of_all_branches_are_rejected_only_for_the_failing_branch() -> None:
    before = World(flow=TurningAway(frozenset({"a/0/1"}), branches={"good": frozenset(), "late": frozenset()}))
    machine = Machine()
    assert go(before, machine, DATA).succeeded
    broken = World(flow=flow_of(optional(Stage("own", Raising())), GOOD))
    assert broken.reprocess(machine, DATA, "a").succeeded
    assert [value for value, _, _ in errors(machine, "a/late")] == ["a/0/1"]
    audit_result = audit(broken, machine)
    assert audit_result.exact
    assert in_branches(audit_result) == {"good": (4, 0), "late": (4, 1)}


def test_error_files_that_cannot_be_written_fail_the_attempt() -> None:
    """They belong to the attempt as a whole, so no branch could be dropped to save it."""

    def fault(operation: Any) -> None:
        if operation.kind == "mkdir" and "errors.late" in operation.path:
            raise PermissionError(operation.path)

    machine = Machine()
    machine.faults.append(fault)
    world = World(flow=flow_of(optional(Stage("own", Raising())), GOOD))
    result = go(world, machine, DATA)
    assert not result.succeeded
    machine.restart()
    assert go(world, machine, DATA).succeeded
    assert audit(world, machine).exact


def test_flow_without_a_mandatory_branch_is_rejected() -> None:
    fork = {"operator": {"type": "all"}, "branches": {"x": {"optional": True}, "y": {"optional": True}}}
    from distcommit.app.job_file.built_in_types import validated

    operator = validated("fork", {"type": "all"})
    with pytest.raises(ValueError, match="must have a branch that is not optional"):
        ForkSettings.model_validate({**fork, "operator": operator})
    fork_settings = ForkSettings.model_validate({"operator": operator, "branches": {"x": {"optional": True}, "y": {}}})
    assert [branch.optional for branch in fork_settings.branches.values()] == [True, False]
