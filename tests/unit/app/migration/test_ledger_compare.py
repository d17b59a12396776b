"""Two jobs held against each other, of which one commits at a target."""

from __future__ import annotations

from pathlib import Path

from distcommit.app.migration.compare import compare_outputs
from tests.unit.app.admin.ledger_jobs import LedgerJob
from tests.unit.engine.driver.machines import source


def test_a_target_is_held_against_files(tmp_path: Path) -> None:
    data = source(a=[14], b=7)
    ours, theirs = LedgerJob(tmp_path), LedgerJob(tmp_path, in_files=frozenset({"left", "right"}))
    for job in (ours, theirs):
        job.run(data)
    flows = ours.flow_of(data), theirs.flow_of(data)
    found = compare_outputs(ours.store, flows[0], theirs.store, flows[1])
    assert found.same, found
    assert [row.both for row in found.rows] == [14, 7]
    ours.query("DELETE FROM ledger WHERE dataset = 'a'")
    found = compare_outputs(ours.store, flows[0], theirs.store, flows[1])
    assert not found.same
    assert [row.only_theirs > 0 for row in found.rows] == [True, False]
