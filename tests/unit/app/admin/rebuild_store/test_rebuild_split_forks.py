"""Rebuilds of a store from files and a ledger, where a fork routes each record to only one of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.core.interfaces.committer import CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.source import Source
from distcommit.engine.driver.run import run
from distcommit.pipeline.task_flow import Branch, TaskFlow
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import ByValue
from tests.simulation.world import ROOTS
from tests.unit.app.admin.ledger_jobs import FILES, LedgerJob
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back
from tests.unit.app.admin.rebuild_store.test_rebuild_from_ledgers import DyingSink
from tests.unit.engine.driver.machines import launch

FIRST, SECOND = ModelSource({"a": ModelDataset({"0": 2})}), ModelSource({"a": ModelDataset({"0": 5})})


@dataclass
class SplitJob(LedgerJob):
    """A job with a file branch `left` and a target branch `right`. `not_left` and `not_right` name records without
    output there."""

    not_left: frozenset[str] = frozenset()
    not_right: frozenset[str] = frozenset()

    def flow_of(self, source: Source) -> TaskFlow:
        fork = ByValue({"left": self.not_left, "right": self.not_right})
        return TaskFlow(source, (Branch(FILES, "left"), Branch(self.sink, "right")), fork=fork)


@pytest.mark.parametrize("lost", [True, False])
def test_records_for_the_target_only_are_read_again_after_a_rebuild(tmp_path: Path, lost: bool) -> None:
    """A run dies after the files and before the target's commit. The files record which offsets were not for them."""
    job = SplitJob(tmp_path, not_left=frozenset({"a/0/3", "a/0/4"}), not_right=frozenset({"a/0/2"}))
    assert job.run(FIRST).succeeded
    backup = job.machine.paths(ROOTS.store)
    _die_before_the_target(job)
    if lost:
        lose_the_store(job.machine)
    else:
        put_back(job.machine, backup)
    result = job.rebuild()
    assert (result.written, result.problems, result.set_aside_count) == (True, [], 1), result
    assert job.run(SECOND).succeeded
    audited = job.audit()
    assert (audited.exact, audited.skipped) == (True, 0), audited
    assert [value for _, _, value in job.rows()] == ["a/0/0", "a/0/1", "a/0/3", "a/0/4"]


def test_first_commit_at_a_target_after_a_rebuild_is_reported_and_no_row_is_written_twice(tmp_path: Path) -> None:
    """The target has no ledger row of the dataset that the rebuild could fence."""
    job = SplitJob(tmp_path, not_right=frozenset({"a/0/0", "a/0/1"}))
    assert job.run(FIRST).succeeded
    sleeping = job.world.begin(job.machine, FIRST, sink=job.sink).epoch
    lose_the_store(job.machine)
    assert job.rebuild().written
    assert stored_states(job.store)["a"].targets == {"right": (0,)}
    context = CommitterContext(job.store.fs, ROOTS.staging, ROOTS.output, job.store.store_id)
    committer = job.sink.committers["sqlite"].open_committer(context)
    request = CommitRequest("a", sleeping, (), "right", (0,), 1, ("attempt",))
    assert [type(outcome) for outcome in committer.commit([request])] == [Committed]
    result = job.run(SECOND)
    assert not result.succeeded
    assert any("its ledger has epoch" in reason.text for reason in result.reasons.entries), result
    assert job.rows() == []
    assert [row.epoch for row in committer.ledger()] == [sleeping]


def _die_before_the_target(job: SplitJob) -> None:
    def crash() -> None:
        def dead(operation: object) -> None:
            raise Crashed

        job.machine.faults.append(dead)
        raise Crashed

    settings, flow = job.world.begin(job.machine, SECOND, sink=job.sink), job.flow_of(SECOND)
    dying = DyingSink(str(job.path), crash, False)
    branches = [replace(branch, sink=dying) if branch.name == "right" else branch for branch in flow.branches]
    with suppress(Crashed):
        run(launch, replace(settings, flow=replace(flow, branches=branches)))
        raise AssertionError("the run was not killed")
    job.machine.restart()
