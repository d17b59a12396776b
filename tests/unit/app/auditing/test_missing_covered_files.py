"""Missing files of the newest sequence whose offsets are also covered by other files."""

from __future__ import annotations

from distcommit.app.auditing.audit import audit_store
from tests.unit.app.admin.rebuild_store.test_rebuild_half_published import SECOND, SEVERAL
from tests.unit.engine.driver.machines import OUTPUT, Machine


def test_audit_reports_a_missing_file_although_other_files_cover_the_same_input_records() -> None:
    machine = Machine()
    assert SEVERAL.run(machine, SECOND).succeeded
    assert audit_store(SEVERAL.store(machine), SECOND.provenance, deep=False).exact
    path = next(path for path in machine.paths(OUTPUT) if "/part=b/" in path)
    machine.remove(path)
    result = audit_store(SEVERAL.store(machine), SECOND.provenance, deep=False)
    assert not result.exact
    assert any("the file is missing: the commit log" in problem for problem in result.altered), result.altered
