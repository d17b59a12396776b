"""Runs that are killed in the middle of a large range, with `task.resume_across_runs`: the next run commits the
finished work units, and reads only the others."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.core.work_units import TaskOutcome
from distcommit.engine.driver.run import RunResult
from distcommit.stores.state.task_states import PastStates
from tests.integration.sources.test_kafka_reading import make_topic, produce
from tests.jobs.in_commit import run_of
from tests.servers.kafka import KafkaServer

ROWS, UNIT = 300_000, 5_000
MANY_ROWS, MANY_UNIT = 10_000_000, 100_000
KILL_AT = 0.9
MOST_REPEATED = 0.15
KAFKA_RECORDS = 60_000
SLOW = {
    "type": "python",
    "class": "tests.integration.parts.breaking_converter:Slow",
    "options": {"seconds": 0.1},
}


def write_job(folder: Path, source: dict[str, Any], sink: dict[str, Any]) -> Path:
    path = folder / "job.yaml"
    config = {
        "job": "backfill",
        "source": source,
        "converters": [SLOW],
        "sink": sink,
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "policy": "successful", "min_interval_ms": 0},
        "task": {"resume_across_runs": True},
        "spark": {"master": "local[2,4]"},
    }
    path.write_text(yaml.safe_dump(config))
    return path


def table_job(folder: Path, sink: dict[str, Any], rows: int = ROWS, unit: int = UNIT) -> Path:
    with closing(sqlite3.connect(folder / "tables.db")) as connection, connection:
        connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, s TEXT)")
        numbered = ((number, f"row {number}") for number in range(rows))
        connection.executemany("INSERT INTO events VALUES (?, ?)", numbered)
    source = {"type": "sql", "url": f"sqlite:///{folder}/tables.db", "tables": ["events"], "watermark": "id"}
    return write_job(folder, {**source, "lookback": 0, "records_per_work_unit": unit, "batch_rows": unit}, sink)


def kill_at(path: Path, units: int) -> int:
    """Start a run, kill it once that many work units are finished, and return the number of their records."""
    store = Job.from_file(path).open_store(create=True)
    with run_of(path, "killed") as run:
        while len([*(path.parent / "store" / "task_states").rglob("*.parquet")]) < units:
            assert not run.has_ended, run.stderr.read_text()
            time.sleep(0.02)
        run.freeze()
        logs = [store.bucket_log(bucket).refresh() for bucket in range(4)]
        assert not any(fold.pending() for fold in logs), "it has already sealed"
        run.kill()
    return finished_records(store, store.job_log().refresh().fence_run_id)


def finished_records(store: Any, run_id: str) -> int:
    states = [state for bucket in range(4) for state in PastStates(store.fs, store.roots.store).of(run_id, bucket)]
    return sum(
        {state.work_unit_id: state.records_read for state in states if state.outcome is TaskOutcome.SUCCEEDED}.values()
    )


def times_in_files(folder: Path, column: str) -> list[int]:
    """Return how often each number from 0 on is in the published files."""
    ids = ds.dataset([str(path) for path in (folder / "output").rglob("*.parquet")]).to_table([column])[column]
    return [int(times) for times in np.bincount(ids.to_numpy())]


def times_in_table(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "target.db")) as connection:
        ids = [number for (number,) in connection.execute("SELECT id FROM events")]
    return [int(times) for times in np.bincount(ids)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "rows", "unit"),
    [
        ("files", ROWS, UNIT),
        ("sqlite", ROWS, UNIT),
        pytest.param("files", MANY_ROWS, MANY_UNIT, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_table_killed_at_90_percent_is_read_again_from_there(
    tmp_path: Path,
    spark: SparkSession,
    sink: str,
    rows: int,
    unit: int,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    sinks: dict[str, tuple[dict[str, Any], Callable[[], list[int]]]] = {
        "files": ({"type": "files"}, lambda: times_in_files(tmp_path, "id")),
        "sqlite": ({"type": "sqlite", "path": f"{tmp_path}/target.db"}, lambda: times_in_table(tmp_path)),
    }
    settings, published = sinks[sink]
    path = table_job(tmp_path, settings, rows, unit)
    finished = kill_at(path, int(KILL_AT * rows / unit))
    assert KILL_AT * rows <= finished < rows
    result: RunResult = Job.from_file(path, session=spark).run()
    assert result.succeeded, result
    in_progress = 2 * unit
    never_read = rows - finished - in_progress
    repeated = result.totals.records_read - never_read
    record_testsuite_property(f"repeated after a kill, {sink}", f"{repeated} of {rows}")
    assert repeated <= MOST_REPEATED * rows
    assert result.totals.sequences_replayed == 1
    assert published() == [1] * rows
    assert Job.from_file(path).audit(deep=True).exact
    assert Job.from_file(path, session=spark).run().succeeded
    assert not [entry for entry in (tmp_path / "staging").rglob("*") if entry.is_file() and "owner" not in entry.name]


@pytest.mark.slow
def test_table_is_read_from_its_beginning_if_the_job_file_was_changed(tmp_path: Path, spark: SparkSession) -> None:
    path = table_job(tmp_path, {"type": "files"})
    assert kill_at(path, ROWS // UNIT // 2) < ROWS
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**config, "sink": {"type": "files", "compression": "none"}}))
    result = Job.from_file(path, session=spark).run()
    assert result.succeeded, result
    assert result.totals.records_read == ROWS
    assert times_in_files(tmp_path, "id") == [1] * ROWS
    assert Job.from_file(path).audit(deep=True).exact


@pytest.mark.slow
def test_killed_backfill_of_a_topic_continues_behind_its_finished_work_units(
    tmp_path: Path, spark: SparkSession, kafka_server: KafkaServer
) -> None:
    topic = make_topic(kafka_server)
    produce(kafka_server, topic, KAFKA_RECORDS)
    source = {"type": "kafka", "brokers": kafka_server.bootstrap_servers, "topics": [topic]}
    path = write_job(tmp_path, {**source, "records_per_work_unit": 2_000}, {"type": "files"})
    assert kill_at(path, 15) < KAFKA_RECORDS
    result = Job.from_file(path, session=spark).run()
    assert result.succeeded, result
    assert result.totals.records_read <= 0.6 * KAFKA_RECORDS
    audit = Job.from_file(path).audit(deep=True)
    assert (audit.exact, audit.records) == (True, KAFKA_RECORDS)
