"""Operations wait at their caller, in every arm, and one server counts them."""

from __future__ import annotations

import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.questions.latency import check, far_arms, latency
from benchmarks.results import Sample
from benchmarks.runner import WrongResultError, measure
from benchmarks.workloads.latency import LatencyServer, far_file_system, wait_at
from benchmarks.workloads.tree import Shape

TINY = Shape(datasets=6, files=3, buckets=4)
PER_DATASET = {
    "bare_2p_2t": {"mkdir": 1, "rename": 3},
    "bare_folders_2p_2t": {"rename": 1},
    "gobblin_4t": {"create": 3, "open": 1, "stat": 10 + 3 * 3, "mkdir": 2, "rename": 4, "unlink": 1, "list": 1},
    "manifest": {"mkdir": 1, "rename": 3},
    "ours": {"rename": 1},
    "ours_into_folders": {"stat": 3, "mkdir": 0, "rename": 3},  # two: both folders stay inside their roots
}


def test_threads_wait_side_by_side() -> None:
    with LatencyServer(0.05) as server, ThreadPoolExecutor(8) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: wait_at(server.address, "rename"), range(16)))
        assert 0.1 <= time.perf_counter() - began < 0.5
        waited = server.take()
        assert waited["operations"] == waited["operations_rename"] == 16
        assert waited["most_at_a_time"] == 8
        assert waited["mean_wait_ms"] >= 50
        assert server.take()["operations"] == 0


@pytest.mark.parametrize("answered", [False, True])
def test_dead_process_is_forgotten(answered: bool) -> None:
    with LatencyServer(0.02) as server:
        with socket.socket(socket.AF_UNIX) as dying:
            dying.connect(server.address)
            dying.send(b"\0")
            if answered:  # and has not read it: the server then sees a reset
                select.select([dying], (), ())
        wait_at(server.address, "stat")
        wait_at(server.address, "stat")
        assert server.take()["operations"] == 3


@pytest.mark.parametrize("name", sorted(PER_DATASET))
def test_an_arm_waits_for_each_operation(name: str, spark: SparkSession, tmp_path: Path) -> None:
    with LatencyServer(0.001) as server:
        arms = {arm.name: arm for arm in far_arms(spark, 2, server, threads=4, slots=2)}
        assert sorted(arms) == sorted(PER_DATASET)
        if reason := arms[name].missing():
            pytest.skip(reason)
        few, many = (measure(arms[name], Shape(size, 3, 4), 0, tmp_path) for size in (20, 40))
    check(many, Shape(40, 3, 4), 4)
    for kind, count in PER_DATASET[name].items():
        added = many.parts[f"operations_{kind}"] - few.parts[f"operations_{kind}"]
        assert added == pytest.approx(20 * count, abs=4), kind  # a bucket more or less has work


def test_the_product_waits_below_its_file_system(tmp_path: Path) -> None:
    with LatencyServer(0.001) as server:
        fs = far_file_system(server, 2)
        assert fs.put_if_absent(f"{tmp_path}/one", b"data")
        waited = server.take()
    assert {kind: waited[f"operations_{kind}"] for kind in ("create", "sync", "rename")} == {
        "create": 1,
        "sync": 2,
        "rename": 1,
    }


def test_arm_with_too_many_threads_or_too_few_renames_is_not_a_sample() -> None:
    def sample(renames: int, most: int) -> Sample:
        return Sample("manifest", 6, 3, 0, 1.0, {"operations_rename": float(renames), "most_at_a_time": float(most)})

    check(sample(18, 4), TINY, 4)
    for wrong in (sample(17, 4), sample(18, 5)):
        with pytest.raises(WrongResultError, match="manifest"):
            check(wrong, TINY, 4)


def test_latency(spark: SparkSession, tmp_path: Path) -> None:
    results = latency(
        TINY, delay_ms=1, threads=4, slots=2, repeats=1, folder=tmp_path, tell=lambda text: None, spark=spark
    )
    if "manifest" in results.skipped:
        pytest.skip(results.skipped["manifest"])
    assert "latency_ours_over_manifest" in results.ratios  # without Spark's own part, which may be mere noise
    assert results.ratios["operations_per_dataset_bare_2p_2t"] >= 5
