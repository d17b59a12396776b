"""`task.retry_across_runs` for files, tables, REST lists and Spark's readers.

The next run reads the failed range again, up to its planned end, in spite of kills in between.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.engine.driver.run import RunResult
from tests.jobs.in_commit import killed_in_commit, run_of
from tests.servers.rest import RestServer, wait_for_end_of_second

DATASETS = [f"d{number:02d}" for number in range(12)]
BREAKING = {
    "type": "python",
    "class": "tests.integration.parts.breaking_converter:Breaking",
    "options": {"number": 7},
}
NOW_S = 1_700_000_000


class Read(ABC):
    """Input of a job: datasets with equal records numbered by `n`.

    `waits`: whether the newest record waits for a later one.
    """

    waits = False
    converters: Sequence[dict[str, Any]] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Return the `source` section of the job file."""

    @abstractmethod
    def put(self, numbers: range) -> None:
        """Add these records to each dataset."""


class Files(Read):
    @property
    def source(self) -> dict[str, Any]:
        return {"type": "files", "format": "parquet", "paths": [f"{self.folder}/in/{{dataset}}/*.parquet"]}

    def put(self, numbers: range) -> None:
        for name in DATASETS:
            path = self.folder / "in" / name / f"{numbers.start}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"n": [*numbers]}), path)
            os.utime(path, (NOW_S + numbers.start,) * 2)


class SparkReader(Files):
    waits = True

    @property
    def source(self) -> dict[str, Any]:
        datasets = {name: {"path": str(self.folder / "in" / name)} for name in DATASETS}
        return {"type": "spark", "format": "parquet", "datasets": datasets, "watermark": "n", "lookback": 0}


class Tables(Read):
    @property
    def source(self) -> dict[str, Any]:
        url = f"sqlite:///{self.folder / 'tables.db'}"
        return {"type": "sql", "url": url, "table_patterns": ["d.*"], "watermark": "n", "lookback": 0}

    def put(self, numbers: range) -> None:
        with closing(sqlite3.connect(self.folder / "tables.db")) as connection, connection:
            for name in DATASETS:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (n INTEGER PRIMARY KEY)")
                connection.executemany(f"INSERT INTO {name} VALUES (?)", [(number,) for number in numbers])


class Lists(Read):
    converters = ({"type": "json", "fields": {"n": "int64"}, "keep_column": False},)

    def __init__(self, folder: Path, server: RestServer) -> None:
        super().__init__(folder)
        self.server, self.prefix = server, uuid.uuid4().hex[:8]
        self.rows: list[str] = []

    @property
    def source(self) -> dict[str, Any]:
        return {
            "type": "rest",
            "url": f"{self.server.url}/cursor/{self.prefix}-{{dataset}}",
            "datasets": DATASETS,
            "records": "data.items",
            "paging": {"type": "cursor", "path": "next", "param": "cursor"},
            "watermark": {"field": "at", "type": "time", "since": "since", "lookback": 0},
        }

    def put(self, numbers: range) -> None:
        now = datetime.now(UTC)
        times = [now + timedelta(microseconds=number) for number in numbers]
        self.rows += [json.dumps({"at": at.isoformat(), "n": n}) for at, n in zip(times, numbers, strict=True)]
        for name in DATASETS:
            self.server.put(f"{self.prefix}-{name}", rows=self.rows, limit=1000)
        wait_for_end_of_second(times[-1])


KINDS: dict[str, Callable[[Path, pytest.FixtureRequest], Read]] = {
    "files": lambda folder, _: Files(folder),
    "sql": lambda folder, _: Tables(folder),
    "rest": lambda folder, request: Lists(folder, request.getfixturevalue("rest_server")),
    "spark": lambda folder, _: SparkReader(folder),
}
LONG = (pytest.mark.slow, pytest.mark.long)
OTHERS = [kind for kind in KINDS if kind != "files"]


class AgainJob:
    """Job that retries failed ranges in later runs."""

    def __init__(self, read: Read) -> None:
        self.read, self.folder, self.path = read, read.folder, read.folder / "job.yaml"

    def write(self, *, broken: bool, **changed: dict[str, Any]) -> None:
        config: dict[str, Any] = {
            "job": "again",
            "source": self.read.source,
            "converters": [*self.read.converters, *([BREAKING] if broken else [])],
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 4, "min_interval_ms": 60_000},
            "task": {"retry_across_runs": "always", "attempts": 1},
            "spark": {"master": "local[2,4]"},
        }
        config |= {section: config[section] | settings for section, settings in changed.items()}
        self.path.write_text(yaml.safe_dump(config))

    def run(self, spark: SparkSession) -> RunResult:
        return Job.from_file(self.path, session=spark).run()

    def whole(self, numbers: range) -> list[int]:
        """Return the numbers that are published once all of these records are read."""
        return [*numbers[: -1 if self.read.waits else None]]

    def published(self) -> dict[str, list[int]]:
        """Return the published numbers of each dataset, by pyarrow alone; the audit must confirm each of them once."""
        paths = {name: (self.folder / "output" / name).rglob("*.parquet") for name in DATASETS}
        read = {name: [ds.dataset(str(path)).to_table()["n"].to_pylist() for path in paths[name]] for name in DATASETS}
        content = {name: sorted(number for numbers in read[name] for number in numbers) for name in DATASETS}
        audit = Job.from_file(self.path).audit(deep=True)
        assert (audit.exact, audit.records) == (True, sum(map(len, content.values())))
        return content

    def assert_published(self, numbers: range) -> None:
        assert self.published() == dict.fromkeys(DATASETS, self.whole(numbers))


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession) -> AgainJob:
    """Return a job whose first run failed to read its input; more records have arrived since, and the input is
    repaired."""
    again_job = AgainJob(KINDS[request.param](tmp_path, request))
    again_job.read.put(range(10))
    again_job.write(broken=True)
    assert again_job.run(spark).totals.datasets_failed == len(DATASETS)
    again_job.assert_published(range(0))
    again_job.read.put(range(10, 20))
    again_job.write(broken=False)
    return again_job


@pytest.mark.parametrize("job", KINDS, indirect=True)
def test_failed_range_is_read_up_to_its_planned_end(job: AgainJob, spark: SparkSession) -> None:
    for numbers in (range(10), range(20)):
        assert job.run(spark).succeeded
        job.assert_published(numbers)


class KeyedTables(Tables):
    """Tables of which the first six are committed as a whole and the others (`parts`) as far as they are readable:
    by three rows."""

    parts = frozenset(DATASETS[6:])

    @property
    def source(self) -> dict[str, Any]:
        return {**super().source, "records_per_work_unit": 3, "batch_rows": 3}


@pytest.mark.parametrize(
    ("retry", "by_themselves"),
    [
        pytest.param("always", set(DATASETS), marks=LONG),
        ("on_full", set(DATASETS) - KeyedTables.parts),
        ("on_partial", set(KeyedTables.parts)),
        pytest.param("never", set(), marks=LONG),
    ],
)
def test_failed_range_of_a_table_is_retried_from_its_watermark_by_policy(
    tmp_path: Path, spark: SparkSession, retry: str, by_themselves: set[str]
) -> None:
    """The range begins at the watermark after the failed run, which a partially committed dataset has moved."""
    job = AgainJob(KeyedTables(tmp_path))
    policies = [{"datasets": sorted(KeyedTables.parts), "policy": "partial"}]
    settings: dict[str, dict[str, Any]] = {"commit": {"policies": policies}, "task": {"retry_across_runs": retry}}
    job.read.put(range(10))
    job.write(broken=True, **settings)
    assert not job.run(spark).succeeded
    assert job.published() == {name: [*range(6 if name in KeyedTables.parts else 0)] for name in DATASETS}
    job.read.put(range(10, 20))
    job.write(broken=False, **settings)
    assert job.run(spark).succeeded
    assert job.published() == {name: [*range(10 if name in by_themselves else 20)] for name in DATASETS}
    assert job.run(spark).succeeded
    job.assert_published(range(20))


@pytest.mark.slow
@pytest.mark.parametrize(
    "job", ["files", *(pytest.param(kind, marks=pytest.mark.long) for kind in OTHERS)], indirect=True
)
def test_retry_killed_in_its_commit_ends_at_the_planned_end_and_the_next_run_continues(
    job: AgainJob, spark: SparkSession
) -> None:
    run = partial(run_of, job.path, "killed")
    assert killed_in_commit(job.path, run), "no run was killed in the middle of its commit"
    assert Job.from_file(job.path, session=spark).recover().succeeded
    first, all_of_it = job.whole(range(10)), job.whole(range(20))
    sealed = {name for name, numbers in job.published().items() if numbers == first}
    assert sealed
    assert job.published() == {name: first if name in sealed else [] for name in DATASETS}
    assert job.run(spark).succeeded
    assert job.published() == {name: all_of_it if name in sealed else first for name in DATASETS}
    assert job.run(spark).succeeded
    job.assert_published(range(20))
