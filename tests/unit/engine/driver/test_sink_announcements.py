"""A sink is informed of a task's datasets before any record is read, if their columns are known by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from distcommit.constructs.forks.by_schema import AllBranches
from distcommit.engine.driver.run import run
from distcommit.pipeline.task_flow import Branch, TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.model_source import SCHEMA, ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, launch
from tests.unit.engine.driver.test_custom_sinks import MemorySink

WORLD = World(buckets=4)
DATASETS = {"a": ModelDataset({"0": 3, "1": 2}), "b": ModelDataset({"0": 1})}


@dataclass(frozen=True)
class KnownSource(ModelSource):
    """A source that declares the columns of its records."""

    @property
    def batch_schema(self) -> pa.Schema:
        return SCHEMA


@dataclass
class RecordingSink(MemorySink):
    told: list[tuple[str, list[str]]] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    early: set[str] = field(default_factory=set)
    fails: bool = False

    def announce(self, datasets: Sequence[str], schema: pa.Schema, run_id: str) -> None:
        assert schema == SCHEMA
        self.told.append((run_id, sorted(datasets)))
        self.early |= {*datasets} - {attempt.dataset_urn for attempt in self.attempts}
        if self.fails:
            raise ConnectionError("the target can't be reached")

    def look_up(self, datasets: Sequence[str], run_id: str) -> None:
        self.looked_up += datasets
        self.early |= {*datasets} - {attempt.dataset_urn for attempt in self.attempts}


@pytest.mark.parametrize("fails", [False, True])
def test_sink_is_informed_of_each_dataset_once_and_may_fail(fails: bool) -> None:
    machine, sink = Machine(), RecordingSink(fails=fails)
    settings = WORLD.begin(machine, KnownSource(DATASETS), sink=sink)
    assert run(launch, settings).succeeded
    assert {run_id for run_id, _ in sink.told} == {settings.run_id}
    assert all(len(names) == len({*names}) for _, names in sink.told)
    assert sink.early == {"a", "b"}, "each before its first writer is opened"
    assert {name: len(values) for name, values in sink.rows.items()} == {"a": 5, "b": 1}


@pytest.mark.parametrize("behind", ["columns that only records tell", "a fork"])
def test_sink_is_asked_only_to_look_up_uncertain_columns_or_not_at_all(behind: str) -> None:
    sink = RecordingSink()
    is_forked = behind == "a fork"
    settings = WORLD.begin(Machine(), (KnownSource if is_forked else ModelSource)(DATASETS), sink=sink)
    if is_forked:
        branches = (Branch(sink, "x"), Branch(FileSink(), "y"))
        settings = replace(settings, flow=TaskFlow(settings.flow.source, branches, fork=AllBranches()))
    assert run(launch, settings).succeeded
    assert sink.told == []
    assert {*sink.looked_up} == {"a", "b"}
    assert sink.early == {"a", "b"}, "each before its first writer is opened"
