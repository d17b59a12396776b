"""Rebuilds of a dataset of which one epoch is published, and whose first offset is not 0, as it began at
`start: latest`, or as what was older had expired: what is taken out of the output is read again, or told lost.

Nothing of it was open: its run was not clean, as another dataset could not be read in it.
"""

from __future__ import annotations

import pytest

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.work import DatasetPlan
from distcommit.sources.kafka.names import PartitionLog
from distcommit.sources.kafka.plan import plan_dataset
from distcommit.sources.kafka.source import KafkaSource
from distcommit.stores.folders.ownership import Mark, read_marks
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import SimulatedFileSystem, World
from tests.unit.app.admin.rebuilding import lose_the_store
from tests.unit.app.admin.rebuilding import rebuild as rebuilt
from tests.unit.engine.driver.machines import OUTPUT, Machine, states

WORLD = World(buckets=2)


def _lived() -> Machine:
    """Of `a` offsets 3 to 8 are published, whole and done, and nothing is left open anywhere; `b` could not be read."""
    machine = Machine()
    a = ModelDataset({"0": 9}, expired={"0": 3}, incarnation="id")
    b = ModelDataset({"0": 2}, fails=frozenset("0"))
    WORLD.run(machine, ModelSource({"a": a, "b": b}))
    marks = read_marks(SimulatedFileSystem(machine), OUTPUT)
    assert marks[Mark.CLEAN] == 0 < marks[Mark.ENDED]
    lose_the_store(machine)
    return machine


def _plan(state: DatasetState, low: int, expired_offsets: str) -> DatasetPlan | None:
    """What a source that begins at the newest plans, where Kafka has offsets from `low` to 20."""
    settings = {
        "type": "kafka",
        "brokers": "x:1",
        "topics": ["a"],
        "start": "latest",
        "expired_offsets": expired_offsets,
    }
    return plan_dataset(KafkaSource.model_validate(settings), "a", {0: PartitionLog(low, 20, 20)}, state, "id")


@pytest.mark.parametrize("low", [0, 3])
def test_what_is_set_aside_is_read_again_where_a_job_begins_at_the_newest(low: int) -> None:
    machine = _lived()
    result = rebuilt(WORLD, machine)
    assert (result.problems, result.set_aside_count) == ([], 1)
    plan = _plan(states(WORLD, machine)["a"], low, "earliest")
    assert plan is not None
    assert plan.work_units[0].low.positions == {"0": low}
    assert [(skip.low, skip.high) for skip in plan.skipped] == ([(0, low)] if low else [])


def test_what_is_set_aside_and_has_expired_since_is_told() -> None:
    machine = _lived()
    rebuilt(WORLD, machine)
    with pytest.raises(SourceError, match="expected offset 0; found offsets 6 to 20; 6 offsets have expired"):
        _plan(states(WORLD, machine)["a"], 6, "fail")
    WORLD.run(machine, ModelSource({"a": ModelDataset({"0": 12}, expired={"0": 6}, incarnation="id")}))
    found = audit_store(WORLD.store(machine), ModelSource.provenance, deep=True)
    assert (found.exact, found.records, found.skipped) == (True, 6, 6)


def test_at_least_once_loses_nothing_where_a_job_begins_at_the_newest() -> None:
    """Offsets 3 to 8 and then 9 to 11 are published, each by a run that has succeeded."""
    world, machine = World(buckets=2, at_least_once=True), Machine()
    for end in (9, 12):
        source = ModelSource({"a": ModelDataset({"0": end}, expired={"0": 3}, incarnation="id")})
        assert world.run(machine, source).succeeded
    lose_the_store(machine)
    assert rebuilt(world, machine).problems == []
    plan = _plan(states(world, machine)["a"], 0, "fail")
    assert plan is not None
    assert plan.work_units[0].low.positions == {"0": 0}
