"""A run dies while it publishes, and its store is lost, restored from an older backup, or partly unreadable.

Records that may be missing are read again, and no record is published twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import ByValue, TurningAway
from tests.simulation.world import ROOTS, World
from tests.unit.app.admin.ledger_jobs import LedgerJob
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back, rebuild
from tests.unit.engine.driver.machines import OUTPUT, Machine

TWO = TurningAway(branches={"x": frozenset(), "y": frozenset()})
FIRST, SECOND = ModelSource({"a": ModelDataset({"0": 2})}), ModelSource({"a": ModelDataset({"0": 5})})


def dies_as_it_publishes(world: World, machine: Machine, source: ModelSource, path: str, after: int = 0) -> None:
    """Kill a run when it renames a file or folder to `path`, after `after` such renames."""
    remaining = [after]

    def dies(operation: Operation) -> None:
        if operation.kind.startswith("rename") and re.match(f"{OUTPUT}/{path}", operation.path):
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.faults.append(dies)
    with suppress(Crashed):
        world.run(machine, source)
    machine.restart()


def after_the_next_run(world: World, machine: Machine, source: ModelSource) -> AuditResult:
    assert rebuild(world, machine).written
    assert world.run(machine, source).succeeded
    least = world.at_least_once
    return audit_store(world.store(machine), source.provenance, deep=True, at_least_once=least)


@pytest.mark.parametrize("published", range(1, 4))
def test_records_published_in_one_branch_only_are_not_published_twice_after_a_rebuild(published: int) -> None:
    """Two work units write to both branches.

    The first work unit may continue in both branches where the older files end. It must not compensate for records of
    the second work unit that only one branch has.
    """
    world, machine, source = World(flow=TWO), Machine(), ModelSource({"a": ModelDataset({"0": 6}, units=2)})
    world.run(machine, FIRST)
    backup = machine.paths(ROOTS.store)
    dies_as_it_publishes(world, machine, source, "a/[xy]/[0-9]", published)
    put_back(machine, backup)
    result = after_the_next_run(world, machine, source)
    assert (result.exact, result.records) == (True, 12)


def test_records_published_in_one_branch_only_are_not_published_twice_after_one_for_that_branch_alone() -> None:
    """Only branch x receives the first new record. Its file records that, so the record is accounted for in both
    branches."""
    fork = ByValue({"y": frozenset({"a/0/2"})})
    world, machine = World(flow=TurningAway(branches=TWO.branches, fork=fork)), Machine()
    world.run(machine, FIRST)
    backup = machine.paths(ROOTS.store)
    dies_as_it_publishes(world, machine, SECOND, "a/y/[0-9]")
    put_back(machine, backup)
    result = after_the_next_run(world, machine, SECOND)
    assert (result.exact, result.records) == (True, 9)


@pytest.mark.parametrize("at_least_once", [False, True])
def test_dataset_published_in_one_branch_only_begins_at_offset_0_after_a_rebuild(*, at_least_once: bool) -> None:
    """The configured start must not apply: starting at the newest record would skip records that the other branch
    lacks."""
    world = World(buckets=2, flow=TWO, at_least_once=at_least_once)
    machine, source = Machine(), ModelSource({"a": ModelDataset({"0": 2}), "b": ModelDataset({"0": 2})})
    world.run(machine, ModelSource({"b": source.datasets["b"]}))
    dies_as_it_publishes(world, machine, source, "a/y")
    assert [path for path in machine.paths(OUTPUT) if "/a/x/" in path]
    assert not [path for path in machine.paths(OUTPUT) if "/a/y/" in path]
    lose_the_store(machine)
    result = rebuild(world, machine)
    assert result.written
    assert bool([path for path in result.set_aside if "/a/x/" in path]) is not at_least_once
    watermark = stored_states(world.store(machine))["a"].watermark
    assert watermark is not None
    assert watermark.positions == {"0": 0}


@dataclass(frozen=True, slots=True)
class _Twice(Converter):
    """A converter that makes two records of each input record, for two different folders."""

    makes_several: ClassVar[bool] = True

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        rows = pa.array([row for row in range(batch.num_rows) for _ in "ab"], pa.int64())
        parts = pa.array([part for _ in range(batch.num_rows) for part in "ab"])
        yield Converted(batch.take(rows).append_column("part", parts), rows)


def _twice(source: Source, sink: Sink) -> TaskFlow:
    return TaskFlow(source, (Branch(sink),), stages=(Stage("twice", _Twice()),))


FILES = FileSink(compression="none", partition_by=FieldPartition(field="part"))
SEVERAL = World(flow=_twice, files=FILES)
SEVERAL_AT_LEAST_ONCE = World(flow=_twice, files=FILES, at_least_once=True)


def is_kept(machine: Machine, backup: dict[str, bytes]) -> None:
    """Keep the store, which knows the pending sequence, as when another bucket's log is damaged."""


@pytest.mark.parametrize("becomes_of_the_store", [put_back, is_kept])
def test_partly_published_output_records_of_one_input_record_are_read_again(
    becomes_of_the_store: Callable[[Machine, dict[str, bytes]], None],
) -> None:
    """Each of an attempt's two files covers all of its offsets, and only one file is published."""
    machine = Machine()
    SEVERAL.run(machine, FIRST)
    backup = machine.paths(ROOTS.store)
    dies_as_it_publishes(SEVERAL, machine, SECOND, "a/part=b/[0-9]")
    becomes_of_the_store(machine, backup)
    result = after_the_next_run(SEVERAL, machine, SECOND)
    assert (result.exact, result.records) == (True, 10)


def test_fully_published_output_records_of_one_input_record_are_kept_if_the_store_lists_all_files() -> None:
    """The run dies after it published both files and before it recorded this."""
    machine = Machine()
    SEVERAL.run(machine, FIRST)
    renamed = re.compile(f"{OUTPUT}/a/part=b/[0-9]")

    def dies(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/" in operation.path:
            new = [path for path in machine.paths(OUTPUT) if renamed.match(path)]
            if len(new) > 1:
                raise Crashed

    machine.faults.append(dies)
    with suppress(Crashed):
        SEVERAL.run(machine, SECOND)
    machine.restart()
    assert stored_states(SEVERAL.store(machine))["a"].sequence is not None
    result = rebuild(SEVERAL, machine)
    assert (result.written, result.set_aside_count) == (True, 0)
    audited = after_the_next_run(SEVERAL, machine, SECOND)
    assert (audited.exact, audited.records) == (True, 10)


def test_at_least_once_rebuild_reads_partly_published_output_records_of_one_input_record_again() -> None:
    machine, world = Machine(), SEVERAL_AT_LEAST_ONCE
    world.run(machine, FIRST)
    backup = machine.paths(ROOTS.store)
    dies_as_it_publishes(world, machine, SECOND, "a/part=b/[0-9]")
    put_back(machine, backup)
    result = after_the_next_run(world, machine, SECOND)
    assert result.passed
    assert len(parts(machine, "b")) == 2


def test_at_least_once_rebuild_reads_partly_published_records_again_after_a_shorter_clean_run() -> None:
    """The last records that the killed run read are recorded nowhere."""
    machine, world = Machine(), SEVERAL_AT_LEAST_ONCE
    world.run(machine, FIRST)
    dies_as_it_publishes(world, machine, SECOND, "a/part=b/[0-9]")
    assert world.run(machine, ModelSource({"a": ModelDataset({"0": 3})})).succeeded
    lose_the_store(machine, 1)
    rebuild(world, machine)
    watermark = stored_states(world.store(machine))["a"].watermark
    assert watermark is not None
    assert watermark.positions == {"0": 3}


class InParts(LedgerJob):
    """A job whose file branch partitions by a field and whose target branch gets none of the new records."""

    def flow_of(self, source: Source) -> TaskFlow:
        flow = _twice(source, FILES)
        remaining, right = Branch(FILES, "left"), Branch(self.sink, "right")
        return replace(
            flow, branches=[remaining, right], fork=ByValue({"right": frozenset(f"a/0/{n}" for n in (2, 3, 4))})
        )


def test_partly_published_files_are_set_aside_beside_a_target_that_gets_none_of_their_records(tmp_path: Path) -> None:
    job = InParts(tmp_path)
    job.run(FIRST)
    backup = job.machine.paths(ROOTS.store)

    def dies(operation: Operation) -> None:
        if operation.kind.startswith("rename") and re.match(f"{OUTPUT}/a/left/part=b/[0-9]", operation.path):
            raise Crashed

    job.machine.faults.append(dies)
    with suppress(Crashed):
        job.run(SECOND)
    job.machine.restart()
    put_back(job.machine, backup)
    result = job.rebuild()
    assert (result.written, result.set_aside_count) == (True, 1)
    assert job.run(SECOND).succeeded
    audited = job.audit()
    assert (audited.exact, audited.records) == (True, 14), audited


def parts(machine: Machine, part: str) -> list[str]:
    return [path for path in machine.paths(OUTPUT) if f"/part={part}/" in path]
