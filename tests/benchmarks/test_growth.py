"""The model finds planted costs, and executors on virtual time take the computed time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.questions.growth import Asked, Model, growth
from benchmarks.results import Results
from benchmarks.workloads.traced_run import Load, Trace, TracedRun, totals_of, traced_run
from benchmarks.workloads.virtual_time import Surroundings, lay_out
from distcommit.fs.local_disk.local_file_system import LocalFileSystem

_LOADS = [Load(8, 1, 4, 1), Load(16, 2, 4, 2), Load(24, 1, 8, 1), Load(32, 3, 16, 4), Load(16, 4, 8, 2)]


def trace(*pauses: float, rest: float = 0.0) -> Trace:
    return Trace([(pause, "rename") for pause in pauses], 0, rest)


def test_the_model_finds_the_costs_of_each_kind() -> None:
    true = [
        5 + 7 * load.partitions + 11 * load.buckets + 3 * load.datasets + 2 * load.datasets * load.files
        for load in _LOADS
    ]
    model = Model(_LOADS, [{"calls": cost, "writes": cost, "bytes": cost, "cpu_s": cost} for cost in true])
    assert model.costs["calls"] == pytest.approx([5, 7, 11, 3, 2])
    assert model.of(Load(1000, 4, 64, 8))["calls"] == pytest.approx(5 + 56 + 704 + 3000 + 8000)


def test_executors_share_tasks_and_wait_for_the_driver() -> None:
    run = TracedRun(
        [[trace(1.0)], [trace(1.0), trace(1.0), trace(1.0), trace(1.0)], [trace(1.0)]], [False, True, False]
    )
    nothing = Surroundings(0.0, 0.0, 0.0)
    assert lay_out(run, 1, nothing).seconds == pytest.approx(6)
    assert lay_out(run, 2, nothing).seconds == pytest.approx(4)
    four = lay_out(run, 4, nothing)
    assert (four.seconds, four.driver_s, four.imbalance) == pytest.approx((3, 2, 1))


def test_metadata_server_answers_requests_in_turn() -> None:
    run = TracedRun([[trace(0.0), trace(0.0), trace(0.0)]], [True])
    assert lay_out(run, 3, Surroundings(1.0, 0.0, 0.0)).seconds == pytest.approx(1)
    assert lay_out(run, 3, Surroundings(1.0, 0.5, 0.0)).seconds == pytest.approx(2), "the third waits for two"
    assert lay_out(run, 3, Surroundings(1.0, 0.0, 0.25)).seconds == pytest.approx(1.75), "it is launched last"


def test_trace_has_every_call_and_the_time_between(tmp_path: Path) -> None:
    run = traced_run(LocalFileSystem(), str(tmp_path), Load(6, 3, 2, 2), syncs=False)
    assert [len(stage) for stage, job in zip(run.stages, run.jobs, strict=True) if job][:2] == [2, 2]
    tasks = totals_of(run.tasks)
    renames = sum(kind == "rename_noreplace" for one in run.tasks for _, kind in one.steps)
    assert renames >= 18, "file by file, as the folders were there"
    assert tasks["calls"] > tasks["writes"] > renames
    assert tasks["cpu_s"] > 0
    published = list(tmp_path.glob("output/*/*.parquet"))
    assert len(published) == 36, "two runs"


@pytest.mark.slow
@pytest.mark.long
def test_growth(tmp_path: Path) -> None:
    results = growth(Asked(unit=1, datasets=12, buckets=4, executors=(2, 4)), folder=tmp_path, tell=print)
    assert 0 <= results.ratios["model_disk_calls_error"] < 0.3, "how many rounds a task commits in depends on time"
    assert results.ratios["virtual_speed_up_2_executors"] > 1
    assert results.ratios["table_s3_calls"] is None
    assert results.skipped["table_s3_calls"] == "not asked for"
    assert msgspec.json.decode(msgspec.json.encode(results), type=Results) == results, "the report can read it"
