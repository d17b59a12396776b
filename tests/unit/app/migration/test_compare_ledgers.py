"""Comparison of two jobs, one of which commits at a target."""

from __future__ import annotations

from pathlib import Path

from distcommit.app.migration.compare_outputs import compare_outputs
from tests.unit.app.admin.ledger_jobs import LedgerJob
from tests.unit.engine.driver.machines import source


def test_target_is_compared_with_files(tmp_path: Path) -> None:
    data = source(a=[14], b=7)
    target_job, files_job = LedgerJob(tmp_path), LedgerJob(tmp_path, in_files=frozenset({"left", "right"}))
    for job in (target_job, files_job):
        job.run(data)
    flows = target_job.flow_of(data), files_job.flow_of(data)
    result = compare_outputs(target_job.store, flows[0], files_job.store, flows[1])
    assert result.is_equal, result
    assert [row.positions_in_both for row in result.rows] == [14, 7]
    target_job.query("DELETE FROM ledger WHERE dataset = 'a'")
    result = compare_outputs(target_job.store, flows[0], files_job.store, flows[1])
    assert not result.is_equal
    assert [row.positions_only_there > 0 for row in result.rows] == [True, False]
