"""Rebuilds of a store from ledgers, alone or beside files: no record is published twice or lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from distcommit.app.admin.rebuild_store import plan_rebuild
from distcommit.core.errors import StaleStoreError, TransientError
from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, CommitterContext, SinkCommitter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import run
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelSource
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink
from tests.unit.app.admin.ledger_jobs import LedgerJob
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back, remove_clean_mark
from tests.unit.engine.driver.machines import launch, source, states

FIRST, SECOND, THIRD = source(a=[8], b=3), source(a=[14], b=7), source(a=[17], b=9, c=5)
ALONE, BOTH = frozenset[str](), frozenset({"left"})


def plain(source: Source, sink: Sink) -> TaskFlow:
    return TaskFlow.straight(source, sink)


def undisturbed(folder: Path, in_files: frozenset[str], data: ModelSource) -> list[tuple[str, str, str]]:
    """Return the rows of a job that was never disturbed."""
    folder.mkdir()
    job = LedgerJob(folder, in_files)
    job.run(data)
    return job.rows()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("in_files", [ALONE, BOTH, frozenset({"right"})])
def test_lost_store_is_rebuilt_from_ledgers_and_files(tmp_path: Path, in_files: frozenset[str], clean: bool) -> None:
    job = LedgerJob(tmp_path, in_files)
    job.run(FIRST)
    job.run(SECOND)
    before = states(job.world, job.machine)
    if not clean:
        remove_clean_mark(job.machine)
    lose_the_store(job.machine)
    result = job.rebuild()
    assert result.written, result
    after = states(job.world, job.machine)
    assert {urn: state.watermark for urn, state in after.items()} == {u: s.watermark for u, s in before.items()}
    assert {urn: state.done_epoch for urn, state in after.items()} == {u: s.done_epoch for u, s in before.items()}
    assert job.audit().exact, job.audit()
    assert job.run(THIRD).succeeded
    assert job.audit().exact, job.audit()
    assert job.rows() == undisturbed(tmp_path / "other", in_files, THIRD)


@pytest.mark.parametrize("in_files", [ALONE, BOTH])
def test_store_older_than_its_target_is_refused_until_it_is_rebuilt(tmp_path: Path, in_files: frozenset[str]) -> None:
    job = LedgerJob(tmp_path, in_files)
    job.run(FIRST)
    backup = job.machine.paths("/job/store")
    job.run(SECOND)
    put_back(job.machine, backup)
    rows = job.rows()
    with pytest.raises(StaleStoreError):
        job.run(THIRD)
    assert job.rows() == rows
    assert job.rebuild().written
    assert job.audit().exact
    job.run(THIRD)
    assert job.audit().exact
    assert job.rows() == undisturbed(tmp_path / "other", in_files, THIRD)


@dataclass(frozen=True, slots=True)
class DyingSink(SqliteSink):
    """A sink whose committer dies before or after it commits."""

    die: Callable[[], None] = lambda: None
    after: bool = False

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return DyingCommitter(self, context)


class DyingCommitter(SqliteCommitter):
    def __init__(self, sink: DyingSink, context: CommitterContext) -> None:
        super().__init__(sink.path, context)
        self.sink = sink

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.sink.after:
            super().commit(requests[:1])
        self.sink.die()
        return super().commit(requests)


def die(job: LedgerJob, data: ModelSource, *, after: bool) -> None:
    """Kill a run at the first commit of its target."""

    def crash() -> None:
        job.machine.faults.append(lambda operation: (_ for _ in ()).throw(Crashed))
        raise Crashed

    dying = DyingSink(str(job.path), crash, after)
    settings = job.world.begin(job.machine, data, sink=job.sink)
    flow = job.flow_of(data)
    branches = [b if b.name in job.in_files else replace(b, sink=dying) for b in flow.branches]
    with suppress(Crashed):
        run(launch, replace(settings, flow=replace(flow, branches=branches)))
    job.machine.restart()


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("in_files", [ALONE, BOTH])
def test_store_lost_after_a_run_died_between_files_and_target_is_rebuilt_exactly(
    tmp_path: Path, in_files: frozenset[str], after: bool
) -> None:
    """Files of a sequence that its target lacks are set aside; rows at the target count as published."""
    job = LedgerJob(tmp_path, in_files, flow=plain if not in_files else LedgerJob.flow)
    job.run(FIRST)
    die(job, SECOND, after=after)
    lose_the_store(job.machine)
    result = job.rebuild()
    assert result.written, result
    assert bool(result.set_aside) == (bool(in_files) and not after), result
    assert job.audit().exact, job.audit()
    assert job.run(THIRD).succeeded
    assert job.audit().exact, job.audit()


def test_dataset_with_only_set_aside_files_begins_at_offset_0(tmp_path: Path) -> None:
    """The configured start must not apply: starting at the newest record would skip the records that were set aside."""
    job = LedgerJob(tmp_path, BOTH)
    die(job, FIRST, after=False)
    lose_the_store(job.machine)
    result = job.rebuild()
    assert result.set_aside, result
    assert states(job.world, job.machine)["a"].watermark == Watermark({"0": 0})
    assert job.run(THIRD).succeeded
    assert job.audit().exact, job.audit()


@dataclass(frozen=True, slots=True)
class OtherSink(SqliteSink):
    name: ClassVar[str] = "other"


def in_two_targets(job: LedgerJob) -> LedgerJob:
    """Give each branch a target of its own, the left one first."""
    other = OtherSink(str(job.folder / "other.db"))

    def flow(source: Source, sink: Sink) -> TaskFlow:
        task_flow = LedgerJob(job.folder).flow(source, sink)
        return replace(task_flow, branches=[replace(task_flow.branches[0], sink=other), task_flow.branches[1]])

    return replace(job, in_files=ALONE, flow=flow)


def test_rows_in_one_target_that_the_next_target_lacks_are_reported_and_nothing_is_written(tmp_path: Path) -> None:
    job = in_two_targets(LedgerJob(tmp_path))
    job.run(FIRST)
    old = job.path.read_bytes()
    job.run(SECOND)
    job.path.write_bytes(old)
    lose_the_store(job.machine)
    before = copy.deepcopy(states(job.world, job.machine))
    result = job.rebuild()
    assert not result.written
    assert result.problems_count == 3
    assert "are not in branch right" in result.problems[0]
    assert states(job.world, job.machine) == before
    result = job.rebuild(accept_gaps=True)
    assert result.written
    audit = job.audit()
    assert audit.skipped == 3, "offsets 8 and 10 of a and 6 of b must be skipped"
    assert audit.exact, audit
    job.run(THIRD)
    assert job.audit().exact


def test_zombie_cannot_commit_after_a_rebuild(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path, flow=plain)
    job.run(FIRST)
    epoch = job.world.begin(job.machine, FIRST, sink=job.sink).epoch
    lose_the_store(job.machine)
    assert job.rebuild().written
    committer = job.sink.committers["sqlite"].open_committer(
        CommitterContext(job.store.fs, "/job/staging", "/job/output", job.store.store_id)
    )
    (outcome,) = committer.commit([CommitRequest("a", epoch, ())])
    assert "was taken back" in str(outcome)
    job.run(SECOND)
    assert job.audit().exact


def test_unreadable_ledger_stops_the_rebuild(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path)
    job.run(FIRST)
    job.query("UPDATE ledger SET row = 'x' WHERE dataset = 'a'")
    lose_the_store(job.machine)
    plan = plan_rebuild(job.store, {}, accept_gaps=False, flow=job.flow_of(ModelSource()))
    assert plan.problems[0].startswith("ledger of branch right, sink sqlite: ")
    with pytest.raises(TransientError, match="ledger of branch right, sink sqlite: "):
        job.rebuild()


def test_target_that_is_down_only_while_it_is_fenced_stops_the_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = LedgerJob(tmp_path)
    job.run(FIRST)
    lose_the_store(job.machine)
    before, reads, read_ledger = copy.deepcopy(states(job.world, job.machine)), 0, SqliteCommitter.ledger

    def down_at_the_second_read(committer: SqliteCommitter) -> Iterator[LedgerRow]:
        nonlocal reads
        reads += 1
        if reads == 2:
            raise ConnectionRefusedError(111, "Connection refused")
        return read_ledger(committer)

    monkeypatch.setattr(SqliteCommitter, "ledger", down_at_the_second_read)
    with pytest.raises(TransientError, match="Connection refused"):
        job.rebuild()
    assert states(job.world, job.machine) == before
    assert job.rebuild().written
    assert job.audit().exact


def test_job_with_a_lost_target_continues_after_the_restart_that_its_error_names(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path, ALONE, flow=plain)
    assert job.run(FIRST).succeeded
    job.path.unlink()
    refused = job.run(SECOND)
    assert not refused.succeeded
    assert "release the dataset with restart" in refused.reasons.entries[0].text
    for urn in states(job.world, job.machine):
        operator_actions.restart(job.store, urn, "operator", job.sink.committers)
    assert job.rows() == []
    assert job.run(THIRD).succeeded
    assert job.audit().exact
    assert len(job.rows()) == 17 + 9 + 5
