"""A committer that dies as it tries whether the output can be written leaves nothing that counts as data."""

from __future__ import annotations

import pytest

from distcommit.fs.local import TEMPORARY
from distcommit.protocol.paths import OUTPUT_PROBE
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.simulated_posix import SimulatedPosix
from distcommit.testing.world import ROOTS, World


@pytest.mark.parametrize("name", [f"{OUTPUT_PROBE}0", f"{TEMPORARY}{OUTPUT_PROBE}0-{'0' * 32}"])
def test_what_a_crashed_probe_of_the_output_leaves_is_no_unknown_file(name: str) -> None:
    machine, world = SimulatedPosix(), World()
    machine.mkdir("/job")
    source = ModelSource({"a": ModelDataset({"0": 2})})
    world.run(machine, source)
    machine.close(machine.open_new(f"{ROOTS.output}/{name}"))
    assert world.violation(machine, source, {}) == ""
