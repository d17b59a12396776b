"""Copies of Kafka topics hold each record once, and the commit's share refers to the time of the copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.questions.ingest import check
from benchmarks.runner import WrongResultError
from benchmarks.workloads.ingested import ingested
from benchmarks.workloads.sampling import Sampled
from benchmarks.workloads.topics import Topics, digest_of_files
from benchmarks.workloads.tree import Shape
from distcommit.engine.committing.drain import drain_partition
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from tests.benchmarks.commands import answer
from tests.servers.java import jars

VALUES = [b"%016d" % number for number in range(30)]


@pytest.mark.long
@pytest.mark.slow
def test_ingest(tmp_path: Path) -> None:
    jars("kafka")
    results = answer(
        *("ingest", "--topics", "2", "--partitions", "2", "--records", "300", "--repeats", "1"),
        *("--datasets", "5", "--files", "2", "--records-per-file", "20", "--flame", str(tmp_path / "flame.svg")),
        folder=tmp_path,
    )
    assert 0 < results.ratios["commit_share_of_wall"] <= results.ratios["commit_share_of_wall_with_sync"] < 1
    assert 0 < results.ratios["content_sum_share"] < 1
    assert 0 < results.ratios["content_sum_share_small_files"] < 1
    assert "<svg" in (tmp_path / "flame.svg").read_text()
    arms = {sample.arm: sample for sample in results.samples}
    assert {arm.parts["files"] for arm in arms.values() if "files" in arm.parts} == {4.0}
    if results.skipped:
        pytest.skip(results.skipped["spark"])
    assert set(arms) == {"ours", "spark", "plain_loop_2p", "ours_many_datasets", "ours_large_sampled"}
    assert results.ratios["throughput_ours_over_spark"] > 0


@pytest.mark.parametrize("copied", [VALUES[:-1], [*VALUES, VALUES[0]], [*VALUES[:-1], VALUES[0]]])
def test_inexact_copy_is_not_a_sample(copied: list[bytes], tmp_path: Path) -> None:
    def write(values: list[bytes]) -> None:
        pq.write_table(pa.table({"value": values}), tmp_path / "output" / "one.parquet")

    (tmp_path / "output").mkdir()
    write(VALUES)
    digest, files, _ = digest_of_files(tmp_path / "output")
    topics = Topics("", ("one",), 1, 30, 16, 1, digest)
    assert check("plain", topics, tmp_path) == (files, 1)
    with pytest.raises(WrongResultError, match="expected 30 records"):
        check("plain", replace(topics, partitions=2), tmp_path)
    write(copied)
    with pytest.raises(WrongResultError, match="plain has"):
        check("plain", topics, tmp_path)


def test_sampled_drain_reports_seconds_by_part(tmp_path: Path) -> None:
    (tmp_path / "sampled").mkdir()
    settings = ingested(Shape(300, 4, 4), tmp_path / "tree", 1, LocalFileSystem())
    assert Sampled(drain_partition, str(tmp_path / "sampled"))(settings, 0).counts.datasets_published == 300
    (sample_file,) = (tmp_path / "sampled").iterdir()
    seconds = msgspec.json.decode(sample_file.read_bytes(), type=dict[str, float])
    assert sample_file.name.startswith("drain_partition-")
    assert 0.3 < seconds["commit"] / seconds["seconds"] <= 1
    assert seconds["sync"] == 0
