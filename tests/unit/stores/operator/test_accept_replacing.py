"""An operator accepts a replacing sequence whose tombstone can no longer be published."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.app.inspection.dry_runs.release_plan import plan_release
from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import read_steps
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import OUTPUT, Machine

WORLD = World(max_attempts=1, files=FileSink(compression="none", publish="replace"))
FIRST, SECOND = ModelSource({"a": ModelDataset({"0": 3})}), ModelSource({"a": ModelDataset({"0": 5})})


def test_accept_of_a_replacing_sequence_without_its_tombstone_is_refused_and_abandon_succeeds() -> None:
    machine = Machine()
    assert WORLD.run(machine, FIRST).succeeded

    def dies(operation: Operation) -> None:
        if operation.kind.startswith("rename") and re.match(f"{OUTPUT}/_rejected/a", operation.path):
            raise Crashed

    machine.faults.append(dies)
    with suppress(Crashed):
        WORLD.run(machine, SECOND)
    machine.restart()
    for path in [path for path in machine.paths(ROOTS.staging) if "tombstone" in path]:
        machine.remove(path)
    WORLD.run(machine, SECOND)
    store = WORLD.store(machine)
    context = StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id)
    steps = read_steps(store, context, "a")
    (shown,) = plan_release(read_status(store), steps, operator_actions.Release.ACCEPT, "a").rows
    assert (shown.changes_dataset, shown.effect.partition(":")[0]) == (False, "refused")
    assert plan_release(read_status(store), steps, operator_actions.Release.ABANDON, "a").rows[0].changes_dataset
    with pytest.raises(ConflictError, match="release the dataset with abandon"):
        operator_actions.accept(store, "a", "operator")
    assert stored_states(store)["a"].status is DatasetStatus.QUARANTINED
    operator_actions.abandon(store, "a", "operator")
    assert WORLD.run(machine, SECOND).succeeded
    result = audit_store(store, ModelSource.provenance, deep=True)
    assert (result.exact, result.records) == (True, 2), result
