"""A fork to two targets of each kind: two Delta locations, two Iceberg catalogs, two SQLite files, by `distcommit run`.

Each target's own client finds each record once, also after kills.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from tests.integration.sinks.test_unavailable_targets import FilesJob, Target
from tests.jobs.victims import strike

SIDES = ("east", "west")


class Both(Target):
    """Two targets of a kind, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for side in SIDES:
            (folder / side / "delta").mkdir(parents=True)

    def sink(self) -> dict[str, Any]:
        return {}

    def catalog(self, side: str) -> dict[str, str]:
        place = self.folder / side
        return {"uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}

    def branches(self) -> dict[str, Any]:
        """Return the job file's branches; the first of each kind is stored under the kind's own name."""
        content: dict[str, Any] = {}
        for side in SIDES:
            place, stored = self.folder / side, {"stored_as": side} if side == "west" else {}
            sinks: dict[str, dict[str, Any]] = {
                "delta": {"location": str(place / "delta")},
                "iceberg": {"catalog": {"type": "sql", **self.catalog(side)}, "namespace": "n"},
                "sqlite": {"path": str(place / "rows.db")},
            }
            for kind, settings in sinks.items():
                content[f"{kind}-{side}"] = {"sink": {"type": kind, **settings, **stored}}
        return content

    def each(self) -> Iterator[Counter[str]]:
        """Return the records of each target."""
        for side in SIDES:
            place = self.folder / side
            deltas = [DeltaTable(log.parent) for log in place.glob("delta/*/_delta_log")]
            yield Counter(name for table in deltas for name in table.to_pyarrow_table()["id"].to_pylist())
            with load_catalog("default", type="sql", **self.catalog(side)) as client:
                there = client.namespace_exists("n")
                tables = [client.load_table(name) for name in client.list_tables("n")] if there else []
                yield Counter(name for table in tables for name in table.scan().to_arrow()["id"].to_pylist())
            with closing(sqlite3.connect(place / "rows.db", timeout=60)) as file:
                asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'd[0-9]'"
                names = [name for (name,) in file.execute(asked).fetchall()]
                yield Counter(id_ for name in names for (id_,) in file.execute(f"SELECT id FROM {name}"))

    def ids(self) -> Counter[str]:
        first, *others = self.each()
        assert all(other == first for other in others)
        return first


@pytest.fixture
def job(tmp_path: Path) -> Iterator[FilesJob]:
    target = Both(tmp_path)
    files_job = FilesJob(tmp_path, target, datasets=4)
    written = yaml.safe_load(files_job.path.read_text())
    del written["sink"]
    written["fork"] = {"type": "all", "branches": target.branches()}
    written["paths"] = {name: f"{tmp_path}/{name}" for name in ("store", "staging", "output")}
    files_job.path.write_text(yaml.safe_dump(written))
    yield files_job
    close_opened()


def test_each_record_is_in_both_targets_once(job: FilesJob, spark: SparkSession) -> None:
    for _ in range(2):
        job.arrive()
        result = Job.from_file(job.path, session=spark).run()
        assert result.succeeded, result.reasons.entries
        job.assert_exact()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_both_targets_are_exact_after_kills_without_orphaned_data_files(job: FilesJob) -> None:
    rng = random.Random(4)
    for _ in range(3):
        job.arrive()
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start() as run:
            deadline_s = time.monotonic() + 300
            while run.wait(0.002) is None and not watcher.pending():
                assert time.monotonic() < deadline_s, job.said()
            time.sleep(rng.random() * 0.3)
            strike(run, "all", signal.SIGKILL, rng)
    assert job.run() == 0, job.said()
    job.assert_exact()
    assert job.run() == 0, job.said()
    for side in SIDES:
        place = job.folder / side
        tables = [DeltaTable(log.parent) for log in place.glob("delta/*/_delta_log")]
        referenced = {Path(uri).name for table in tables for uri in table.file_uris()}
        assert {path.name for path in place.glob("delta/*/*.parquet")} == referenced
