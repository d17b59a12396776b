"""Exit code of `run` after records were lost at the source."""

from __future__ import annotations

from distcommit.cli.exit_codes import exit_code_of
from distcommit.cli.views.runs.run_result_view import run_view
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.cli.views.test_output import rendered
from tests.unit.engine.driver.machines import Machine, go

WORLD = World()


def test_run_that_lost_records_at_the_source_ends_with_exit_code_7_and_the_verdict_with_losses() -> None:
    machine = Machine()
    before = go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 3})}))
    lossy = go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 9}, expired={"0": 7})}))
    assert (exit_code_of(before), exit_code_of(lossy)) == (0, 7)
    assert "with losses" in rendered(run_view(lossy))
