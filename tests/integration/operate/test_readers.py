"""Readers beside runs that commit and are killed, by the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import distcommit
from distcommit import Job
from tests.cluster.readers import run_readers


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_readers_see_whole_commits_while_runs_commit_and_are_killed(tmp_path: Path) -> None:
    result = run_readers(tmp_path, lambda _: None, datasets=30, rounds=3, readers=2, seed=7)
    assert result.is_whole, result
    assert result.in_commit
    assert result.views > 100
    assert result.cuts > 10
    line = [sys.executable, "-m", "distcommit", "dataset", "files", str(tmp_path / "job.yaml")]
    listed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(listed) == 30 * 3 * 2
    assert all(Path(file).is_file() for file in listed)
    done = subprocess.run([*line, "--as-of", "1", "--json"], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["error"]["id"] in ("SNAPSHOT_EXPIRED", "RUN_NOT_SETTLED") or done.returncode == 0


@pytest.mark.parametrize("form", ["parquet", "orc", "jsonl"])
def test_spark_reads_committed_files_and_no_others(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """The dataset has folders by day and a column that came later; it is read at the newest and at an older
    snapshot."""
    (tmp_path / "in").mkdir()
    job = {
        "job": "read",
        "source": {"type": "files", "paths": [f"{tmp_path}/in/*.parquet"], "dataset": "d", "format": "parquet"},
        "sink": {"format": form, "partition_by": {"column": "at", "granularity": "day"}},
        "paths": {name: name for name in ("store", "staging", "output")},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    epochs: list[int] = []
    for run, more in enumerate(({}, {"later": [7, 8, 9]}), start=1):
        days = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 2)]
        arrived = pa.table({"n": [run, run + 10, run + 20], "at": pa.array(days, pa.timestamp("us", "UTC")), **more})
        path = tmp_path / "in" / f"{run}.parquet"
        pq.write_table(arrived, path)
        os.utime(path, (run, run))
        assert Job.from_file(tmp_path / "job.yaml", session=spark).run().succeeded
        epochs.append(distcommit.read(tmp_path / "job.yaml").epoch)
    (stray,) = {path.parent for path in (tmp_path / "output" / "d").rglob(f"0*2-*.{form}*") if "03-02" in str(path)}
    shutil.copy(next(stray.iterdir()), stray / f"stray.{form}")
    read = distcommit.read(tmp_path / "job.yaml").to_spark(spark, "d")
    assert sorted(row["n"] for row in read.collect()) == [1, 2, 11, 12, 21, 22]
    assert sorted(row["later"] or 0 for row in read.collect()) == [0, 0, 0, 7, 8, 9]
    before = distcommit.read(tmp_path / "job.yaml", as_of=epochs[0]).to_spark(spark, "d")
    assert sorted(row["n"] for row in before.collect()) == [1, 11, 21]
