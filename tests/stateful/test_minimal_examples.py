"""Minimal examples of the defects that the state machines have found."""

from __future__ import annotations

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.watermark import Watermark
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.operator import operator_actions
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem, World
from tests.stateful.disturbed_runs import Disturbance


@pytest.mark.parametrize("watermark", [None, Watermark({"0": 1})])
def test_setting_the_current_watermark_again_terminates(watermark: Watermark | None) -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    store = World().store(machine)
    machine.gate = Disturbance(None)
    for _ in range(2):
        operator_actions.set_watermark(store, "a", watermark, "person")


def test_sealing_without_staged_files_leaves_the_store_unchanged() -> None:
    fs = SimulatedFileSystem(SimulatedPosix())
    store = LogCommitStepStore(fs, "/stores", StepContext(fs, "/staging", "/output"), buckets=1)
    store.create("job")
    with pytest.raises(ConfigurationError, match="dataset without steps"):
        store.seal("job", "never put")
    assert store.get_commit_sequence("job", "never put") is None
