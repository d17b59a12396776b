"""Schemas that converters meet: recorded with the sequence, and passed to later work units of the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit, merge_schema_ids
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import ByValue
from tests.simulation.world import ROOTS, World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild as rebuilt
from tests.unit.constructs.registry.test_registry_schema_policy import converter, message
from tests.unit.engine.driver.machines import Machine, audit, dies, go, source, states
from tests.unit.engine.driver.test_faults_by_construct import BatchByBatch
from tests.unit.engine.driver.test_optional_branches import FILES, Raising


@dataclass
class Learning(Converter):
    """A converter that meets one new schema in each work unit: 1 in the first, 2 in the second, and so on."""

    told: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    met: int = 0
    dataset: str = ""

    def begin_work_unit(self, unit: WorkUnit) -> None:
        self.dataset = unit.dataset_urn

    def load_schema_ids(self, ids: Sequence[int]) -> None:
        self.told.append((self.dataset, tuple(ids)))

    def schema_ids(self) -> Sequence[int]:
        self.met += 1
        return (*self.told[-1][1], self.met)

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)


def world_of(learning: Converter, **settings: object) -> World:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        return TaskFlow(source, (Branch(sink),), (Stage("avro", learning),))

    return replace(World(flow=flow), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("at_least_once", [False, True])
def test_next_run_knows_the_schemas_of_the_previous_run(at_least_once: bool) -> None:
    learning, machine = Learning(), Machine()
    world = world_of(learning, at_least_once=at_least_once)
    for count in (2, 4, 4, 6):
        assert go(world, machine, source(a=count)).succeeded
    assert learning.told == [("a", ()), ("a", (1,)), ("a", (1, 2))], "nothing is read without new records"
    assert states(world, machine)["a"].schemas == {"avro": (1, 2, 3)}


def test_schemas_of_all_work_units_of_a_run_are_recorded() -> None:
    learning, machine = Learning(), Machine()
    world = world_of(learning)
    go(world, machine, ModelSource({"a": ModelDataset({"0": 6}, units=3), "b": ModelDataset({"0": 1})}))
    assert learning.told == [("a", ()), ("a", ()), ("a", ()), ("b", ())]
    assert {urn: state.schemas for urn, state in states(world, machine).items()} == {
        "a": {"avro": (1, 2, 3)},
        "b": {"avro": (4,)},
    }


def test_schemas_of_unpublished_sequences_are_forgotten() -> None:
    """A run dies in its commit, and its sealed sequence is abandoned."""
    learning, machine = Learning(), Machine()
    world = world_of(learning)
    go(world, machine, source(a=1))
    machine.faults.append(dies("rename", "/job/output/a/", 1))
    with pytest.raises(Crashed):
        go(world, machine, source(a=3))
    machine.restart()
    operator_actions.quarantine(world.store(machine), "a", "me")
    operator_actions.abandon(world.store(machine), "a", "me")
    assert states(world, machine)["a"].schemas == {"avro": (1,)}
    assert go(world, machine, source(a=3)).succeeded
    assert learning.told[-1] == ("a", (1,))


@dataclass
class Meeting(Converter):
    """A converter that meets schema 1, meets schema 2 at offset 3, and fails there."""

    ids: list[int] = field(default_factory=list)

    def schema_ids(self) -> Sequence[int]:
        return self.ids

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        offsets = batch.column("offset").to_pylist()
        self.ids = [1, 2] if 3 in offsets else [1]
        if 3 in offsets:
            raise LookupError("no")
        yield Converted(batch)


def test_prefix_records_only_the_schemas_of_its_own_records() -> None:
    world, machine = world_of(Meeting(), policy=CommitPolicy.PARTIAL), Machine()
    go(world, machine, BatchByBatch({"a": ModelDataset({"0": 5})}))
    state = states(world, machine)["a"]
    assert (state.watermark, state.schemas) == (Watermark({"0": 3}), {"avro": (1,)})


def test_schemas_behind_a_fork_belong_to_the_branch_and_a_failed_branch_records_none() -> None:
    good, late, breaking = Learning(), Learning(), Raising()

    def flow_with(*stages: Stage) -> World:
        late_branch = Branch(FILES, "late", stages, optional=True)
        branches = (Branch(FILES, "good", (Stage("avro", good),)), late_branch)
        return World(flow=lambda source, _: TaskFlow(source, branches, fork=ByValue()))

    machine, world = Machine(), flow_with(Stage("avro", late))
    go(world, machine, source(a=1))
    assert states(world, machine)["a"].schemas == {"good.avro": (1,), "late.avro": (1,)}
    go(flow_with(Stage("avro", late), Stage("breaks", breaking)), machine, source(a=2))
    assert states(world, machine)["a"].schemas == {"good.avro": (1, 2), "late.avro": (1,)}
    assert late.told == [("a", ()), ("a", (1,))], "the converter is not called for rejected records"


def test_rebuild_keeps_the_schemas_that_the_store_still_has() -> None:
    machine, world = Machine(), world_of(Learning(), buckets=2)
    go(world, machine, source(a=1))
    backup = machine.paths(ROOTS.store)
    go(world, machine, source(a=3))
    put_back(machine, backup)
    assert rebuilt(world, machine).written
    assert states(world, machine)["a"].watermark == Watermark({"0": 3})
    assert states(world, machine)["a"].schemas == {"avro": (1,)}
    lose_the_store(machine)
    rebuilt(world, machine)
    assert states(world, machine)["a"].schemas == {}


def test_newest_hundred_schemas_are_kept() -> None:
    many = merge_schema_ids({"avro": tuple(range(60))}, {"avro": tuple(range(50, 130)), "key": (1,)}, {})
    assert many == {"avro": tuple(range(30, 130)), "key": (1,)}


@dataclass
class Messages(Converter):
    """A source of Avro messages: schema 1, and from offset 3 on an incompatible schema."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        values = [message(1 if offset < 3 else 3) for offset in batch.column("offset").to_pylist()]
        place = batch.schema.get_field_index("value")
        yield Converted(batch.set_column(place, "value", pa.array(values, pa.binary())))


def meeting(policy: str) -> World:
    def flow(source: Source, sink: Sink) -> TaskFlow:
        stages = (Stage("messages", Messages()), Stage("avro", converter(on_incompatible=policy), on_failure="divert"))
        return TaskFlow(source, (Branch(sink),), stages, on_rejected="divert")

    return World(flow=flow)


@pytest.mark.parametrize("policy", ["reject", "fail", "accept"])
def test_incompatible_work_units_of_one_run_end_as_the_policy_requires(policy: str) -> None:
    """The first run of a dataset reads it in two work units, so no published schema exists to compare with."""
    world, machine = meeting(policy), Machine()
    result = go(world, machine, ModelSource({"a": ModelDataset({"0": 6}, units=2)}))
    dataset_states = states(world, machine)
    rejected = {path for path in machine.paths(ROOTS.output) if "/_rejected/" in path and path.endswith(".parquet")}
    if policy == "fail":
        assert not result.succeeded
        assert "on_incompatible is fail" in str(result.reasons.entries)
        assert dataset_states.get("a") is None or not dataset_states["a"].schemas
        return
    assert result.succeeded
    assert dataset_states["a"].watermark == Watermark({"0": 6})
    assert dataset_states["a"].schemas == {"avro": (1,) if policy == "reject" else (1, 3)}
    assert len(rejected) == (policy == "reject")
    assert audit(world, machine).exact
