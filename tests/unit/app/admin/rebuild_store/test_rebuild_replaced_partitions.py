"""Rebuilds of a store from folders by field, where the newest files replaced some files between others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, rebuild, remove_clean_mark
from tests.unit.engine.driver.machines import OUTPUT, Machine


@dataclass(frozen=True)
class Parts(Converter):
    """A converter that names the part of each record by its offset."""

    parts: str

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        parts = pa.array([self.parts[offset] for offset in batch.column("offset").to_pylist()])
        yield Converted(batch.append_column("part", parts), None)


def world_of(parts: str) -> World:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        return TaskFlow(source, (Branch(sink),), stages=(Stage("parts", Parts(parts)),))

    files = FileSink(compression="none", partition_by=FieldPartition(field="part"), publish="replace_partitions")
    return World(flow=flow, files=files)


def ran(world: World, sizes: list[int]) -> Machine:
    machine = Machine()
    for size in sizes:
        assert world.run(machine, ModelSource({"a": ModelDataset({"0": size})})).succeeded
    return machine


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("sizes", [[2, 3], [2, 4], [3, 5], [2, 3, 5], [2, 3, 4, 5]])
def test_rebuild_counts_replaced_records_together_with_the_files_that_remain(sizes: list[int], clean: bool) -> None:
    world = world_of("abbbc")
    machine = ran(world, sizes)
    before = stored_states(world.store(machine))["a"]
    if not clean:
        remove_clean_mark(machine)
    lose_the_store(machine, 1)
    result = rebuild(world, machine)
    assert (result.written, result.problems) == (True, []), result
    after = stored_states(world.store(machine))["a"]
    assert (after.watermark, after.origin) == (before.watermark, before.origin)
    assert audit_store(world.store(machine), ModelSource.provenance, deep=True).exact


def test_rebuild_reports_the_offsets_of_a_lost_file_between_others() -> None:
    world = world_of("axbb")
    machine = ran(world, [3, 4])
    (path,) = [path for path in machine.paths(OUTPUT) if "part=x" in path]
    machine.remove(path)
    lose_the_store(machine, 1)
    result = rebuild(world, machine)
    assert not result.written
    assert any("no file has offsets 1 to 2" in problem for problem in result.problems), result
