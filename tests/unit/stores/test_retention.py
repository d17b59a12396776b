"""What is kept of runs long past."""

from __future__ import annotations

from distcommit.stores.retention import KEPT_RUNS
from distcommit.testing.simulation.world import ROOTS
from tests.unit.engine.machines import Machine, go, source
from tests.unit.engine.situations import WORLD


def test_of_runs_long_past_nothing_is_kept_in_the_tables() -> None:
    machine = Machine()
    for number in range(1, KEPT_RUNS + 4):
        assert go(WORLD, machine, source(a=number, b=number)).succeeded
    for table in ("plans", "task_states"):
        kept = sorted(entry.name for entry in machine.scandir(f"{ROOTS.store}/{table}"))
        assert len(kept) <= KEPT_RUNS + 1, table
        assert len({path.split("/")[4] for path in machine.paths(f"{ROOTS.store}/{table}")}) == len(kept)
