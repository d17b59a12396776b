"""Audits of jobs whose branches commit at a target: by its ledger, alone or beside files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distcommit.app.auditing.audit import audit_store
from distcommit.app.auditing.target_ledgers import open_ledgers, require_audited
from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Abilities, Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.watermark import Watermark
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink
from tests.models.model_flow import records_of
from tests.simulation.world import ROOTS
from tests.unit.app.admin.ledger_jobs import FILES, LedgerJob
from tests.unit.engine.driver.machines import source

FIRST, SECOND = source(a=[8], b=3), source(a=[14], b=7)
ALONE, BOTH = frozenset[str](), frozenset({"left"})


def after(folder: Path, *sources: ModelSource, in_files: frozenset[str] = BOTH) -> LedgerJob:
    job = LedgerJob(folder, in_files)
    for data in sources:
        assert job.run(data).succeeded
    return job


@pytest.mark.parametrize("in_files", [ALONE, BOTH, frozenset({"right"})])
def test_dropped_multiplied_and_rejected_rows_are_counted_like_records_in_files(
    tmp_path: Path, in_files: frozenset[str]
) -> None:
    job = after(tmp_path, FIRST, in_files=in_files)
    result = job.audit()
    rows = {(row.dataset, row.branch): row for row in result.partitions}
    remaining, right = rows["a", "left"], rows["a", "right"]
    assert (remaining.published, remaining.rejected, remaining.filtered, remaining.gaps) == (4, 2, 2, 0)
    assert (right.published, right.rejected, right.filtered, right.gaps) == (3, 3, 2, 0)
    assert result.exact, result
    assert result.records + result.rejected_records == sum(map(records_of, range(8))) + sum(map(records_of, range(3)))
    job.run(SECOND)
    result = job.audit()
    assert result.exact, result
    assert result.records + result.rejected_records == sum(map(records_of, range(14))) + sum(map(records_of, range(7)))


def plain(source: Source, sink: Sink) -> TaskFlow:
    return TaskFlow.straight(source, sink)


def test_audit_of_a_target_without_a_fork_and_with_holes_is_exact(tmp_path: Path) -> None:
    data = ModelSource(
        {
            "a": ModelDataset({"0": 6, "1": 2}, units=2, holes={"0": frozenset({1, 2})}),
            "b": ModelDataset({"0": 3}, holes={"0": frozenset({0, 1, 2})}),
        }
    )
    job = LedgerJob(tmp_path, flow=plain)
    assert job.run(data).succeeded
    result = job.audit()
    assert result.exact, result
    assert (result.records, result.holes, result.ledger_rows) == (6, 5, 1)


def test_deep_audit_reports_rows_missing_at_the_target(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST)
    job.query("DELETE FROM records WHERE rowid = (SELECT min(rowid) FROM records)")
    assert job.audit(deep=False).exact
    result = job.audit()
    assert (result.exact, result.altered_count) == (False, 1)
    assert "rows, but readers see" in result.altered[0]


def test_audit_has_one_committer_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, opened, closed, most = after(tmp_path, FIRST, in_files=ALONE), 0, 0, 0
    open_committer, close = SqliteSink.open_committer, SqliteCommitter.close

    def counted_open(sink: SqliteSink, context: CommitterContext) -> SinkCommitter:
        nonlocal opened, most
        opened += 1
        most = max(most, opened - closed)
        return open_committer(sink, context)

    def counted_close(committer: SqliteCommitter) -> None:
        nonlocal closed
        closed += 1
        close(committer)

    monkeypatch.setattr(SqliteSink, "open_committer", counted_open)
    monkeypatch.setattr(SqliteCommitter, "close", counted_close)
    assert job.audit().exact
    assert most == 1


def test_rows_that_cannot_be_counted_are_reported_by_dataset_and_are_not_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = after(tmp_path, FIRST)
    counted = SqliteCommitter.visible_rows

    def refused(committer: SqliteCommitter, dataset_urn: str, branch: str) -> int | None:
        if dataset_urn == "a":
            raise PermissionError("permission denied for table a")
        return counted(committer, dataset_urn, branch)

    monkeypatch.setattr(SqliteCommitter, "visible_rows", refused)
    result = job.audit()
    assert (result.exact, result.gaps, result.records) == (False, 0, job.audit(deep=False).records)
    assert result.ledger_mismatches == [
        "a, branch right: its rows at the target can't be counted: permission denied for table a"
    ]


def test_partly_unreadable_ledger_reports_gaps_only_for_the_unread_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = after(tmp_path, FIRST)
    read_ledger = SqliteCommitter.ledger

    def broken(committer: SqliteCommitter) -> Iterator[LedgerRow]:
        yield from (row for row in read_ledger(committer) if row.dataset_urn == "b")
        raise TransientError("what is committed to tables can't be told", names="a")

    monkeypatch.setattr(SqliteCommitter, "ledger", broken)
    result = job.audit()
    assert {row.dataset for row in result.partitions if row.branch == "right" and row.gaps} == {"a"}
    assert [text.partition("ledger of branch right")[2].endswith("[names=a]") for text in result.unreadable] == [True]


def test_dataset_missing_from_the_ledger_is_a_gap(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST, SECOND)
    job.query("DELETE FROM ledger WHERE dataset = 'a'")
    job.query("DELETE FROM records WHERE dataset = 'a'")
    result = job.audit()
    assert not result.exact
    assert {(row.dataset, row.branch) for row in result.partitions if row.gaps} == {("a", "right")}


def test_target_restored_from_an_older_backup_is_reported_as_gaps(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST)
    old = job.path.read_bytes()
    job.run(SECOND)
    job.path.write_bytes(old)
    result = job.audit()
    assert not result.exact
    assert {(row.dataset, row.branch) for row in result.partitions if row.gaps} == {("a", "right"), ("b", "right")}


def test_store_older_than_the_target_is_reported(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST, in_files=ALONE)
    backup = job.machine.paths(ROOTS.store)
    job.run(SECOND)
    for path in job.machine.paths(ROOTS.store):
        job.machine.remove(path)
    for path, data in backup.items():
        job.machine.put(path, data)
    result = job.audit()
    assert (result.exact, result.ledger_mismatches_count) == (False, 4)
    assert "the store is older than the target" in result.ledger_mismatches[0]
    assert result.past_watermark > 0


def test_ledger_rows_of_a_dataset_unknown_to_the_store_are_reported(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST)
    job.change("b", "right", dataset_urn="other")
    result = job.audit(deep=False)
    assert not result.exact
    assert result.ledger_mismatches == ["other, branch right: epoch 2 of a dataset that the store does not know"]


def test_ledger_positions_published_by_two_datasets_are_reported(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST, in_files=ALONE)
    provenance = Provenance("partition", "offset", offset_space_of=lambda urn: "all")
    with open_ledgers(job.flow_of(FIRST), job.store) as ledgers:
        result = audit_store(job.store, provenance, deep=False, ledgers=ledgers)
    assert (result.exact, result.shared_positions_count) == (False, 3)


def test_rows_committed_twice_are_reported_by_the_ledger_alone(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path, flow=plain)
    job.run(FIRST)
    ((text,),) = job.query("SELECT row FROM ledger WHERE dataset = 'a'")
    job.query("UPDATE ledger SET row = ? WHERE dataset = 'a'", text.replace('"rows":8', '"rows":11'))
    result = job.audit(deep=False)
    assert (result.exact, result.duplicates) == (False, 3)


def test_missing_rows_are_reported_by_the_ledger_alone(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path, flow=plain)
    job.run(FIRST)
    ((text,),) = job.query("SELECT row FROM ledger WHERE dataset = 'a'")
    job.query("UPDATE ledger SET row = ? WHERE dataset = 'a'", text.replace('"rows":8', '"rows":7'))
    result = job.audit(deep=False)
    assert (result.exact, result.altered_count) == (False, 1)


def test_unreadable_ledger_is_named_and_the_audit_continues(tmp_path: Path) -> None:
    job = after(tmp_path, FIRST)
    job.query("UPDATE ledger SET row = 'x' WHERE dataset = 'a'")
    result = job.audit(deep=False)
    assert not result.exact
    assert result.unreadable[0].startswith("ledger of branch right, sink sqlite: ")
    assert result.datasets == 2


def test_branch_added_later_is_not_owed_earlier_records(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path, flow=plain)
    job.run(FIRST)
    forked = LedgerJob(tmp_path, machine=job.machine)
    assert forked.run(SECOND).succeeded
    result = forked.audit()
    assert result.exact, result


def test_recreated_source_is_audited_by_its_own_offsets(tmp_path: Path) -> None:
    job = LedgerJob(tmp_path, flow=plain)
    job.run(ModelSource({"a": ModelDataset({"0": 3}, incarnation="one")}))
    again = ModelSource({"a": ModelDataset({"0": 2}, incarnation="two")})
    operator_actions.set_watermark(job.store, "a", Watermark({"0": 0}, "two"), "me")
    assert job.run(again).succeeded
    result = job.audit()
    assert result.exact, result
    assert (result.records, result.earlier_incarnations) == (5, 1)


class Silent(SqliteSink):
    """A sink that does not report its commits."""

    abilities = Abilities()


def test_sink_that_does_not_report_its_commits_is_refused_by_name(tmp_path: Path) -> None:
    flow = LedgerJob(tmp_path).flow_of(FIRST)
    require_audited(flow)
    with pytest.raises(ConfigurationError, match="does not report its commits") as caught:
        require_audited(TaskFlow.straight(flow.source, Silent("x")))
    assert "sqlite" in str(caught.value)
    require_audited(TaskFlow.straight(flow.source, FILES))
