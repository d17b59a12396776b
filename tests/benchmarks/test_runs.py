"""Questions about whole runs, at a tiny size."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from benchmarks.arms.ours import Ours
from benchmarks.arms.recovery import Recovery
from benchmarks.cli import app
from benchmarks.questions.recovery import nothing_pending
from benchmarks.questions.scale import scale
from benchmarks.questions.visibility import visibility
from benchmarks.reports import plots
from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import measure
from benchmarks.workloads.tree import Shape


@pytest.mark.parametrize("published", [0.0, 0.5])
def test_recovery_of_pending_datasets(published: float, spark: SparkSession, tmp_path: Path) -> None:
    sample = measure(Recovery(spark, 2, "recover", published), Shape(6, 4, 4), 0, tmp_path)
    assert sample.parts["wall_s"] > 0


def test_nothing_pending(tmp_path: Path) -> None:
    recoveries = nothing_pending(4, 2, 4, tmp_path, lambda text: None)
    assert recoveries["nothing_pending_operations_over_those_after_one_run"] < 2


def test_visibility(spark: SparkSession, tmp_path: Path) -> None:
    results = visibility(8, records=2, buckets=4, repeats=1, folder=tmp_path, tell=lambda text: None, spark=spark)
    assert 0 <= results.ratios["p50_s"] <= results.ratios["p99_s"] <= results.ratios["max_s"] < 60
    assert results.samples[0].arm == Ours(spark, 2).name


def test_scale(spark: SparkSession, tmp_path: Path) -> None:
    results = scale(
        [6, 12],
        buckets=4,
        executors=[],
        shape=Shape(6, 2, 4),
        delay_ms=1,
        repeats=1,
        folder=tmp_path,
        tell=lambda text: None,
        spark=spark,
    )
    assert results.ratios["log_bytes_per_dataset"] > 0
    assert results.samples[0].parts["driver_python_peak_bytes"] > 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00000849, "8.49 µs"), (0.0305, "30.5 ms"), (0.9996, "1,000 ms"), (42.3, "42.3 s"), (2871.4, "2,871 s")],
)
def test_time_is_printed_in_the_best_readable_unit(seconds: float, text: str) -> None:
    assert plots.readable_time(seconds) == text


@pytest.mark.parametrize(
    "sizes",
    [
        {"ours": [10], "bare_2p": [10]},
        {"ours": [10, 20, 40]},
        {"ours": [10, 40], "bare_2p": [10], "slow": [2]},
        {"ours": [10, 40], "virtual_1_executors": [9], "virtual_8_executors": [9]},
    ],
)
def test_report(sizes: dict[str, list[int]], tmp_path: Path) -> None:
    samples = [
        Sample(arm, size, 2, repeat, 0.5 + repeat) for arm in sizes for size in sizes[arm] for repeat in range(3)
    ]
    results = results_of("commit", {"ours_over_bare_2p": 1.0}, samples, seed=1, folder=tmp_path, parameters={})
    files = [tmp_path / "commit.json", tmp_path / "commit_again.json"]  # each has a picture of its own
    for file in files:
        file.write_bytes(msgspec.json.encode(results))
        assert msgspec.json.decode(file.read_bytes(), type=Results) == results
    done = CliRunner().invoke(app, ["report", *map(str, files), "--to", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "| `ours_over_bare_2p` | 1.000 |" in (tmp_path / "out" / "results.md").read_text()
    if reason := plots.missing():
        pytest.skip(reason)
    assert all((tmp_path / "out" / f"{file.stem}.png").stat().st_size > 1000 for file in files)
