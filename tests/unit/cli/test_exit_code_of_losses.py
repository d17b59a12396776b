"""What `run` ends with where records were lost at the source."""

from __future__ import annotations

from distcommit.cli.commands.running import exit_code_of
from distcommit.cli.views.result_views import run_view
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.cli.views.test_output import rendered
from tests.unit.engine.driver.machines import Machine, go

WORLD = World()


def test_run_that_lost_records_to_retention_ends_with_a_code_and_a_verdict_of_its_own() -> None:
    machine = Machine()
    before = go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 3})}))
    lossy = go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 9}, expired={"0": 7})}))
    assert (exit_code_of(before), exit_code_of(lossy)) == (0, 7)
    assert "with losses" in rendered(run_view(lossy))
