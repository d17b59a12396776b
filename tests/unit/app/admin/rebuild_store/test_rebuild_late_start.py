"""Rebuilds of a dataset with a single published epoch whose first offset is not 0.

The dataset began at `start: latest`, or older records had expired. Records that the rebuild sets aside are read again
or reported as lost. None of its sequences was open: the run was not clean because another dataset could not be read.
"""

from __future__ import annotations

import pytest

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.kafka.plan_dataset import plan_dataset
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.kafka.topics import PartitionLog
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import SimulatedFileSystem, World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild as rebuilt
from tests.unit.engine.driver.machines import OUTPUT, Machine, states

WORLD = World(buckets=2)


def _published_then_lost() -> Machine:
    """Publish and close offsets 3 to 8 of `a`, while `b` cannot be read, and then lose the store."""
    machine = Machine()
    a = ModelDataset({"0": 9}, expired={"0": 3}, incarnation="id")
    b = ModelDataset({"0": 2}, fails=frozenset("0"))
    WORLD.run(machine, ModelSource({"a": a, "b": b}))
    marks = read_markers(SimulatedFileSystem(machine), OUTPUT)
    assert marks[Marker.CLEAN] == 0 < marks[Marker.ENDED]
    lose_the_store(machine)
    return machine


def _plan(state: DatasetState, low: int, expired_offsets: str) -> DatasetPlan | None:
    """Plan the dataset for a source with `start: latest` where Kafka has offsets from `low` to 20."""
    settings = {
        "type": "kafka",
        "brokers": "x:1",
        "topics": ["a"],
        "start": "latest",
        "expired_offsets": expired_offsets,
    }
    return plan_dataset(KafkaSource.model_validate(settings), "a", {0: PartitionLog(low, 20, 20)}, state, "id")


@pytest.mark.parametrize("low", [0, 3])
def test_records_set_aside_are_read_again_although_the_job_starts_at_latest(low: int) -> None:
    machine = _published_then_lost()
    result = rebuilt(WORLD, machine)
    assert (result.problems, result.set_aside_count) == ([], 1)
    plan = _plan(states(WORLD, machine)["a"], low, "earliest")
    assert plan is not None
    assert plan.work_units[0].low.positions == {"0": low}
    assert [(skip.low, skip.high) for skip in plan.skipped] == ([(0, low)] if low else [])


def test_records_set_aside_that_expired_at_the_source_are_reported() -> None:
    machine = _published_then_lost()
    rebuilt(WORLD, machine)
    with pytest.raises(SourceError, match="expected offset 0; found offsets 6 to 20; 6 offsets have expired"):
        _plan(states(WORLD, machine)["a"], 6, "fail")
    WORLD.run(machine, ModelSource({"a": ModelDataset({"0": 12}, expired={"0": 6}, incarnation="id")}))
    result = audit_store(WORLD.store(machine), ModelSource.provenance, deep=True)
    assert (result.exact, result.records, result.skipped) == (True, 6, 6)


def test_at_least_once_rebuild_reads_from_offset_0_although_the_job_starts_at_latest() -> None:
    """Two successful runs published offsets 3 to 8 and 9 to 11."""
    world, machine = World(buckets=2, at_least_once=True), Machine()
    for end in (9, 12):
        source = ModelSource({"a": ModelDataset({"0": end}, expired={"0": 3}, incarnation="id")})
        assert world.run(machine, source).succeeded
    lose_the_store(machine)
    assert rebuilt(world, machine).problems == []
    plan = _plan(states(world, machine)["a"], 0, "fail")
    assert plan is not None
    assert plan.work_units[0].low.positions == {"0": 0}
