"""What is kept of runs long past."""

from __future__ import annotations

from distcommit.stores.retention import USUALLY_KEPT
from distcommit.testing.simulation.world import ROOTS
from tests.unit.engine.machines import Machine, go, source
from tests.unit.engine.situations import WORLD


def test_of_runs_long_past_nothing_is_kept_in_the_tables() -> None:
    machine = Machine()
    for number in range(1, USUALLY_KEPT.tables + 4):
        assert go(WORLD, machine, source(a=number, b=number)).succeeded
    for table in ("plans", "task_states", "run_datasets", "run_times"):
        kept = sorted(entry.name for entry in machine.scandir(f"{ROOTS.store}/{table}"))
        assert len(kept) <= USUALLY_KEPT.tables + 1, table
        assert len({path.split("/")[4] for path in machine.paths(f"{ROOTS.store}/{table}")}) == len(kept)
