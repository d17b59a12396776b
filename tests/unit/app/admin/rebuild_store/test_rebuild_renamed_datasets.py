"""Rebuilds of a store from before a `rebucket` that renamed its datasets.

Files published under the new names move the watermark of the dataset with the old name.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.core.interfaces.provenance import Provenance
from distcommit.engine.driver.run import new_run_id
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.logs.rebucket_logs import rebucket
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import run_pinned
from tests.simulation.programs.rebucket import NAMED, named, read_as_topics, renames
from tests.simulation.world import ROOTS, World
from tests.unit.app.admin.rebuild_store.rebuilding import put_back
from tests.unit.engine.driver.machines import Machine

WORLD = World(buckets=2)


def _topic_of(urn: str) -> str:
    return urn.partition("@")[0]


@dataclass(frozen=True, slots=True)
class _Topics(ModelSource):
    """A source whose job file names datasets by topic, whatever their earlier names."""

    provenance = Provenance("partition", "offset", _topic_of)

    def current_name(self, dataset_urn: str, partition: str) -> str:
        return _topic_of(dataset_urn)


@pytest.mark.parametrize("kind", ["topic", "partition"])
def test_records_published_under_newer_dataset_names_are_not_read_again(kind: str) -> None:
    machine = Machine()
    read_as_topics(machine)  # t and u are read up to offset 1
    backup = machine.paths(ROOTS.store)
    rebucket(WORLD.store(machine), renames("partition"), new_run_id(), lambda step: None)
    run_pinned(WORLD, machine, NAMED["partition"], named("partition"))  # t@0, t@1 and u@0 from there up to 2
    put_back(machine, backup)
    store = WORLD.store(machine)
    flow = TaskFlow.straight(_Topics({"t": ModelDataset({"0": 3, "1": 3})}), WORLD.files)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False, flow=flow)
    result = rebuild_store(store, plan, "rebuild-1", "me", accept_gaps=False, flow=flow)
    assert result.written, result.problems
    if kind == "partition":
        rebucket(WORLD.store(machine), renames("partition"), new_run_id(), lambda step: None)
    run_pinned(WORLD, machine, NAMED[kind], named(kind))
    after = audit_store(WORLD.store(machine), _Topics.provenance, deep=True)
    assert not after.duplicates, after.shared_positions
