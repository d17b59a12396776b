"""Renames on HDFS are those of the tree, and the NameNode's own figures confirm a commit's requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.questions.hdfs import hdfs
from benchmarks.questions.latency import latency_on_hdfs
from benchmarks.workloads.tree import Shape


@pytest.mark.long
@pytest.mark.slow
def test_latency_on_hdfs(spark: SparkSession, tmp_path: Path) -> None:
    shape = Shape(6, 3, 2)
    results = latency_on_hdfs(
        shape, threads=4, slots=2, repeats=1, folder=tmp_path, tell=lambda text: None, spark=spark
    )
    assert results.ratios["latency_ours_over_manifest"] > 0
    renames = {sample.arm: sample.parts["operations_rename"] for sample in results.samples}
    assert renames["bare_4t"] == 18
    assert renames["bare_folders_4t"] == 6
    assert renames["manifest"] >= 18
    assert 6 <= renames["ours"] < 18 <= renames["ours_into_folders"], "and the segments of its logs"


@pytest.mark.long
@pytest.mark.slow
def test_hdfs(tmp_path: Path) -> None:
    results = hdfs(
        Shape(6, 3, 2), threads=[1, 4], sizes=[8, 16], files=3, repeats=1, folder=tmp_path, tell=lambda text: None
    )
    ratios = results.ratios
    for scheme in ("hdfs", "webhdfs"):
        for threads in (1, 4):
            assert ratios[f"{scheme}_speed_ours_over_bare_{threads}t"] > 0
        assert ratios[f"{scheme}_rename_per_dataset"] == pytest.approx(1, abs=0.5), "its folder, as a whole"
        assert ratios[f"{scheme}_into_folders_rename_per_dataset"] == pytest.approx(3, abs=0.5), "each file"
        assert ratios[f"{scheme}_create_per_dataset"] < 0.5, "none but those of its bucket's log"
    assert {sample.arm for sample in results.samples} == {
        *(
            f"{scheme}_{arm}_{threads}t"
            for scheme in ("hdfs", "webhdfs")
            for arm in ("ours", "bare")
            for threads in (1, 4)
        ),
        *(f"{scheme}_drain{kind}" for scheme in ("hdfs", "webhdfs") for kind in ("", "_into_folders")),
    }
