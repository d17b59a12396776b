"""Inspection of a large store is measured in the processes that a user starts."""

from __future__ import annotations

from pathlib import Path

from benchmarks.questions.looking import looking


def test_each_command_and_a_reader_are_timed_and_compared_with_the_store(tmp_path: Path) -> None:
    results = looking(300, repeats=1, folder=tmp_path, tell=lambda text: None)
    assert {sample.arm for sample in results.samples} == {"status", "status_json", "datasets", "runs", "open_cut"}
    (opened,) = [sample for sample in results.samples if sample.arm == "open_cut"]
    assert opened.parts["datasets_in_it"] == 291
    for name, value in results.ratios.items():
        assert value is not None, name
        assert value > 0, name
    assert 0 < results.ratios["open_cut_cpu_s"] < results.ratios["status_cpu_s"]
    assert 10 < results.ratios["status_peak_mb"] < 300
