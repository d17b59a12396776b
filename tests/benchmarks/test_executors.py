"""Work runs on the requested number of real executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.commands import answer


@pytest.mark.long
@pytest.mark.slow
def test_more_executors_commit_the_same(tmp_path: Path) -> None:
    results = answer(
        *("scale", "--sizes", "4,8", "--buckets", "8", "--datasets", "24", "--files", "2"),
        *("--executors", "1,2", "--repeats", "1"),
        folder=tmp_path,
    )
    assert results.ratios["speed_up_2_executors_over_1"] > 0
    one, two = (sample for sample in results.samples if sample.arm.endswith("_executors"))
    assert (one.parts["executors"], two.parts["executors"]) == (1, 2)
    assert one.seconds == one.parts["wall_s"] >= one.parts["operations"] * 0.002, "nothing is taken off"
    assert one.parts["most_at_a_time"] == 1
    assert two.parts["most_at_a_time"] == 2
    assert two.parts["operations_rename"] == pytest.approx(one.parts["operations_rename"], rel=0.1)


@pytest.mark.long
@pytest.mark.slow
def test_executors_recover(tmp_path: Path) -> None:
    results = answer(
        *("recovery", "--sizes", "24", "--buckets", "8", "--files", "2", "--history", "2"),
        *("--executors", "2", "--repeats", "1"),
        folder=tmp_path,
    )
    assert results.ratios["nothing_pending_s"] > 0
    recovered = next(sample for sample in results.samples if sample.arm == "recover_2_executors")
    assert recovered.parts["executors"] == 2
    assert recovered.parts["operations_rename"] >= 24
