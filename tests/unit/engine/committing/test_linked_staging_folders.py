"""A link in the staging folder of a dead run blocks only the sweep of that folder."""

from __future__ import annotations

import errno

import pytest

from distcommit.core.interfaces.file_system import OutsideRootError
from distcommit.protocol.paths.shared_names import epoch_name
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.world import World
from tests.unit.engine.driver.machines import STAGING, Machine, audit, go, source, statuses

WORLD = World()


@pytest.mark.parametrize("linked", [f"{STAGING}/{epoch_name(1)}/bucket=00000", f"{STAGING}/{epoch_name(1)}"])
def test_staging_folder_that_links_outside_is_not_swept_and_its_bucket_continues(linked: str) -> None:
    machine, met = Machine(), list[str]()
    assert go(WORLD, machine, source(a=2, b=1)).succeeded
    orphan = f"{STAGING}/{epoch_name(1)}/bucket=00000/00000_000000-{'0' * 32}/f"
    machine.put(orphan, b"x")

    def leads_out(operation: Operation) -> None:
        if operation.kind == "scandir" and operation.path.startswith(linked):
            met.append(operation.path)
            raise OutsideRootError(errno.ELOOP, "a symbolic link leads out", operation.path)

    machine.faults.append(leads_out)
    result = go(WORLD, machine, source(a=4, b=2))
    assert result.succeeded
    assert met, "the sweep has reached it"
    machine.faults.clear()
    assert machine.read_file(orphan) == b"x"
    assert statuses(WORLD, machine) == {"a": "idle", "b": "idle"}
    assert (audit(WORLD, machine).records, audit(WORLD, machine).gaps) == (6, 0)
