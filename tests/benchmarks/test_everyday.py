"""The everyday case is realistic, its figures are those of the runs, and a noisy machine gives no ratio."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.arms.bare import BareRename
from benchmarks.arms.ours import Ours
from benchmarks.arms.recovery import Recovery
from benchmarks.noise import Ratios, compare, interval_of
from benchmarks.runner import measure
from benchmarks.workloads.everyday_topics import Load
from benchmarks.workloads.requests import Counted, count_requests, counts_of
from benchmarks.workloads.tree import Shape
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from tests.benchmarks.commands import answer
from tests.servers.java import jars

TINY = (
    *("everyday", "--topics", "12", "--fewest-records", "2", "--most-records", "9", "--runs", "1"),
    *("--commits", "12", "--repeats", "1", "--buckets", "2"),
)


def test_an_interval_is_between_order_statistics() -> None:
    assert interval_of([3, 1, 2, 5, 4]) == interval_of(range(1, 6))
    five, twelve = interval_of(range(1, 6)), interval_of(range(1, 13))
    assert (five.low, five.centre, five.high) == (1, 3, 5)
    assert five.confidence == pytest.approx(0.9375), "less than 95 %, as reported"
    assert (twelve.low, twelve.high) == (3, 10)
    assert twelve.confidence == pytest.approx(0.9614, abs=1e-4)


def test_pairs_cancel_noise_that_both_sides_share() -> None:
    drift = [1.0, 3.0, 2.0, 5.0]
    steady = compare([2 * slow for slow in drift], drift)
    assert steady.noise == ""
    assert steady.interval.centre == pytest.approx(2)


@pytest.mark.parametrize(
    ("above", "below", "reason"),
    [
        ([1.0, 1.0], [1.0, 1.0], "too few"),
        ([1.0, 2.0, 1.0], [1.0, 1.0, 1.0], "wider than 1.5 times"),
        ([1.0, -0.1, 1.0], [1.0, 1.0, 1.0], "too small"),
    ],
)
def test_inconclusive_samples_give_no_ratio(above: list[float], below: list[float], reason: str) -> None:
    ratios = Ratios()
    ratios.pairs("a_over_b", above, below)
    assert ratios.found == {"a_over_b": None}
    assert reason in ratios.reasons["a_over_b"]
    assert ratios.noisy


def test_a_run_has_one_to_four_files_a_topic() -> None:
    files = list(Load(500).files())
    assert files == list(Load(500).files())
    by_topic = [sum(1 for topic, _, _ in files if topic == number) for number in range(500)]
    assert set(by_topic) == {1, 2, 3, 4}
    records = sorted(records for _, _, records in files)
    assert 100 <= records[0] < 130
    assert 8_000 < records[-1] <= 10_000
    assert 800 < records[len(records) // 2] < 1_250, "as many small ones as large ones, by magnitude"


def test_requests_are_counted_at_their_caller(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    counted = count_requests(fs)
    assert count_requests(fs) is counted, "twice is once"
    fs.put_if_absent(f"{tmp_path}/one", b"data")
    assert fs.read(f"{tmp_path}/one") == b"data"
    counts = counts_of(fs)
    assert (counts["requests_open_new"], counts["requests_read_file"]) == (1, 1)
    assert (counts["bytes_sent"], counts["bytes_received"]) == (4, 4)
    assert counts["requests"] == sum(n for kind, n in counts.items() if kind.startswith("requests_"))
    there: LocalFileSystem = pickle.loads(pickle.dumps(fs))
    assert isinstance(vars(there)["_calls"], Counted)
    assert not counts_of(there)["requests"], "an executor counts what is its own"


def test_replay_resumes_in_partly_published_folders(spark: SparkSession, tmp_path: Path) -> None:
    shape = Shape(datasets=8, files=3, buckets=2)
    arms = [
        Ours(spark, 2, into_folders=True),
        BareRename(2, into_folders=True),
        Recovery(spark, 2, "replay_half_done_into_folders", 0.5, into_folders=True),
    ]
    for arm in arms:
        assert measure(arm, shape, 0, tmp_path).datasets == 8, "and its digest was looked at"


@pytest.mark.slow
@pytest.mark.long
def test_everyday(tmp_path: Path) -> None:
    jars("kafka")
    results = answer(*TINY, folder=tmp_path)
    ratios = results.ratios
    assert ratios["requests_per_dataset_disk"] > 0
    assert ratios["output_bytes_added_per_dataset_disk"] > 0
    assert ratios["ours_over_manifest_on_hdfs"] is None
    assert results.skipped["ours_over_manifest_on_hdfs"] == "not asked for"
    assert ratios["ours_into_folders_over_bare_into_folders_2p"] is None, "one sample is inconclusive"
    assert results.noisy
    run = next(sample for sample in results.samples if sample.arm == "ours_run_disk")
    assert run.parts["sent_to_published_p50_s"] <= run.parts["sent_to_published_p99_s"] <= run.parts["sent_to_read_s"]
    assert 0 < run.parts["commit_share_of_wall"] < 1
    assert run.parts["cpu_s"] > run.parts["cpu_workers_s"] > 0
    idle = next(sample for sample in results.samples if sample.arm == "ours_idle_disk")
    assert idle.parts["spark_jobs"] < run.parts["spark_jobs"]
    assert idle.parts["requests"] < run.parts["requests"]


@pytest.mark.long
@pytest.mark.slow
def test_everyday_on_hdfs_and_s3(tmp_path: Path) -> None:
    jars("kafka")
    results = answer(*TINY, "--threads", "4", "--on-hdfs", "--on-s3", folder=tmp_path)
    for place in ("disk", "hdfs", "s3"):
        assert results.ratios[f"requests_per_dataset_{place}"] > 0
    arms = {sample.arm: sample for sample in results.samples}
    assert arms["manifest_on_hdfs"].parts["operations_rename"] >= 48
    assert arms["ours_into_folders_on_hdfs"].parts["operations_rename"] >= 48
