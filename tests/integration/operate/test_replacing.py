"""Jobs with a replacing publisher, by the command line, killed in mid-commit.

Only the newest snapshot is visible, and of daily partitions the newest version of each day.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml
from confluent_kafka import Producer

from distcommit import Job
from tests.jobs.in_commit import killed_in_commit, run_of
from tests.jobs.kafka_job import DAY_MS, FIRST_DAY_MS, KafkaJob, kafka_job

TABLES = 12
NOW_S = 1_700_000_000


def snapshot_job(folder: Path, **sections: Any) -> Path:
    """Write a job that reads tables, each a file that is rewritten from time to time."""
    path = folder / "job.yaml"
    source = {"type": "files", "paths": [f"{folder}/in/{{dataset}}/all.jsonl"], "format": "jsonl"}
    job = {
        "job": "snapshots",
        "source": {**source, "on_changed_file": "read_again"},
        "converters": [{"type": "json", "fields": {"n": "int64", "version": "int64"}}],
        "on_rejected": "divert",
        "sink": {"publish": "replace"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "min_interval_ms": 60_000},
        "spark": {"master": "local[2,4]"},
        **sections,
    }
    path.write_text(yaml.safe_dump(job))
    return path


def write_tables(folder: Path, version: int) -> None:
    """Write a version of each table: `10 + version` rows, and one invalid record."""
    for table in range(TABLES):
        path = folder / "in" / f"t{table:02d}" / "all.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [json.dumps({"n": n, "version": version}) for n in range(10 + version)]
        path.write_text("\n".join([*rows, f"no record of {version}"]) + "\n")
        os.utime(path, (NOW_S + version,) * 2)


def killed(path: Path, number: int) -> bool:
    """Kill a run as soon as it has sealed a dataset, and return whether it was caught."""
    return killed_in_commit(path, partial(run_of, path, f"killed-{number}"))


def ran(path: Path, command: str = "run", *arguments: str) -> None:
    line = [sys.executable, "-m", "distcommit", *command.split(), str(path), "--json", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def published(folder: Path, below: str = "*") -> Counter[tuple[str, int]]:
    """Return the versions of each table's rows, as a reader without knowledge of commits sees them."""
    versions: Counter[tuple[str, int]] = Counter()
    for path in (folder / "output").glob(f"{below}/**/*.parquet"):
        table = path.relative_to(folder / "output").parts[0]
        if table != "_rejected":
            versions.update((table, version) for version in ds.dataset(str(path)).to_table()["version"].to_pylist())
    return versions


@pytest.mark.slow
@pytest.mark.long
def test_repeated_snapshots_replace_each_other_in_spite_of_kills(tmp_path: Path) -> None:
    path, kills = snapshot_job(tmp_path), 0
    write_tables(tmp_path, 1)
    ran(path)
    for version in (2, 3):
        write_tables(tmp_path, version)
        kills += killed(path, version)
        ran(path)  # replays the sealed sequences, and reads the other datasets
        audit = Job.from_file(path).audit(deep=True)
        rows, audit.partitions = audit.partitions, []
        assert audit.exact, audit
        assert audit.records + audit.rejected_records == TABLES * (11 + version), "of the newest, and an error for each"
        assert sum(row.replaced for row in rows) == TABLES * sum(11 + older for older in range(1, version))
    assert kills, "no run was killed in the middle of its commit"
    ran(path)
    assert published(tmp_path) == Counter({(f"t{table:02d}", 3): 13 for table in range(TABLES)})
    assert Job.from_file(path).audit(deep=True).superseded_files == 0
    errors = [ds.dataset(str(file)).to_table() for file in (tmp_path / "output" / "_rejected").rglob("*.parquet")]
    assert {value for table in errors for value in table["value"].to_pylist()} == {b"no record of 3"}


@pytest.mark.slow
@pytest.mark.long
def test_rejected_records_of_the_newest_snapshot_are_added_to_it(tmp_path: Path) -> None:
    path = snapshot_job(tmp_path)
    for version in (1, 2):
        write_tables(tmp_path, version)
        ran(path)
    path = snapshot_job(tmp_path, converters=[], row_checkers=[])
    ran(path, "dataset reprocess", "t00")
    audit = Job.from_file(path).audit(deep=True)
    assert audit.exact, audit
    assert (audit.records, audit.rejected) == (TABLES * 13 - (TABLES - 1), TABLES - 1)


def days(folder: Path) -> dict[str, Counter[int]]:
    """Return the versions of each day's records, as a reader without knowledge of commits sees them."""
    versions: dict[str, Counter[int]] = {}
    for path in (folder / "output" / "t").rglob("*.parquet"):
        rows = ds.dataset(str(path)).to_table()["version"].to_pylist()
        versions.setdefault(str(path.parent.relative_to(folder / "output" / "t")), Counter()).update(rows)
    return versions


def produce_days(job: KafkaJob, version: int, *numbers: int) -> None:
    """Produce whole days again: 20 records of each, in turn."""
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for _ in range(20):
        for number in numbers:
            value = json.dumps({"version": version}).encode()
            producer.produce("t", value, partition=0, timestamp=FIRST_DAY_MS + number * DAY_MS)
            job.produced += 1
    assert producer.flush(30) == 0


@pytest.mark.slow
def test_repeated_days_replace_those_days_in_spite_of_kills(tmp_path: Path) -> None:
    flow: dict[str, Any] = {
        "sink": {"partition_by": {"granularity": "day"}, "publish": "replace_partitions"},
        "converters": [{"type": "json", "fields": {"version": "int64"}}],
        "commit": {"buckets": 2, "min_interval_ms": 60_000},
    }
    with kafka_job(tmp_path, {"t": 1}, **flow) as job:
        produce_days(job, 1, 0, 1, 2)
        job.run()
        kills = 0
        for version, numbers in ((2, (1, 3)), (3, (1, 2))):
            produce_days(job, version, *numbers)
            kills += killed(job.path, version)
            job.run()
            versions = job.audit()
            rows, versions.partitions = versions.partitions, []
            assert versions.exact, versions
            assert versions.records + sum(row.replaced for row in rows) == job.produced
        assert kills, "no run was killed in the middle of its commit"
        job.run()
        observed = [dict(versions) for _, versions in sorted(days(tmp_path).items())]
        assert observed == [{1: 20}, {3: 20}, {3: 20}, {2: 20}]
        (tmp_path / "store").rename(tmp_path / "lost")
        assert Job.from_file(job.path).rebuild().written
        produce_days(job, 4, 0)
        job.run()
        assert job.audit().exact
        job.run()
        assert [dict(versions) for _, versions in sorted(days(tmp_path).items())] == [
            {4: 20},
            {3: 20},
            {3: 20},
            {2: 20},
        ]
