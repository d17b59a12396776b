"""Files of the newest sequence that are gone where the others name the same offsets."""

from __future__ import annotations

from distcommit.app.auditing.audit import audit_store
from tests.unit.app.admin.test_rebuild_half_published import SECOND, SEVERAL
from tests.unit.engine.driver.machines import OUTPUT, Machine


def test_one_of_several_files_with_output_records_of_the_same_input_records_is_missed() -> None:
    machine = Machine()
    assert SEVERAL.run(machine, SECOND).succeeded
    assert audit_store(SEVERAL.store(machine), SECOND.provenance, deep=False).exact
    path = next(path for path in machine.paths(OUTPUT) if "/part=b/" in path)
    machine.remove(path)
    found = audit_store(SEVERAL.store(machine), SECOND.provenance, deep=False)
    assert not found.exact
    assert any("it is gone: epoch" in told for told in found.altered), found.altered
