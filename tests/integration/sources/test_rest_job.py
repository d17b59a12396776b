"""Lists of a REST server by a job file: runs are killed in mid-commit while records arrive, exact by plain Python
and the audit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from tests.jobs.kafka_job import PACKAGE_ROOT
from tests.servers.rest import RestServer

LISTS = 12
NUMBER = {"field": "id", "type": "integer", "since": "since", "lookback": 0}


class RestJob:
    """Job on lists whose records come in groups of equal numbers; the newest group waits."""

    def __init__(self, folder: Path, server: RestServer, **source: Any) -> None:
        self.folder, self.path, self.server = folder, folder / "job.yaml", server
        self.lists = [f"{folder.name}-{number}" for number in range(LISTS)]
        self.records: dict[str, list[tuple[int, str]]] = {name: [] for name in self.lists}
        url, paging = f"{server.url}/cursor/{{dataset}}", {"type": "cursor", "path": "next", "param": "cursor"}
        base = {"type": "rest", "url": url, "datasets": self.lists, "records": "data.items", "paging": paging}
        config = {
            "job": "lists",
            "source": {**base, "watermark": NUMBER, "retries": 1, **source},
            "converters": [{"type": "json", "fields": {"id": "int64", "s": "string"}, "keep_column": False}],
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 8, "min_interval_ms": 60_000},
            "spark": {"master": "local[2,4]"},
        }
        self.path.write_text(yaml.safe_dump(config))

    def add(self, count: int, **of: Any) -> None:
        """Add that many records to each list."""
        for name, records in self.records.items():
            begin = len(records)
            records += [(number // 3, f"{name}-{number}") for number in range(begin, begin + count)]
            rows = [json.dumps({"id": value, "s": text}) for value, text in records]
            self.server.put(name, rows=rows, field="id", is_number=True, limit=7, exclusive=True, **of)

    def start(self, name: str) -> RunProcess:
        return RunProcess(["run", str(self.path), "--json"], self.folder / f"{name}.out", self.folder / f"{name}.err")

    def expected(self) -> Counter[tuple[int, str]]:
        return Counter(item for records in self.records.values() for item in records if item[0] < records[-1][0])

    def published(self) -> Counter[tuple[int, str]]:
        records: Counter[tuple[int, str]] = Counter()
        for path in (self.folder / "output").glob("*/**/*.parquet"):
            rows = ds.dataset(str(path)).to_table()
            records.update(zip(rows["id"].to_pylist(), rows["s"].to_pylist(), strict=True))
        return records


def test_lists_are_published_run_after_run(tmp_path: Path, spark: SparkSession, rest_server: RestServer) -> None:
    job = RestJob(tmp_path, rest_server)
    for count in (20, 0, 7):
        job.add(count)
        assert Job.from_file(job.path, session=spark).run().succeeded
        assert job.published() == job.expected()
    audit = Job.from_file(job.path).audit(deep=True)
    assert audit.exact
    assert audit.records == job.expected().total()
    assert sum(row.published for row in audit.partitions) == audit.records  # by number, one by one
    next((tmp_path / "output").glob("*/**/*.parquet")).unlink()
    assert Job.from_file(job.path).audit().gaps


def test_list_with_a_problem_keeps_its_watermark_and_others_are_published(
    tmp_path: Path, spark: SparkSession, rest_server: RestServer
) -> None:
    job = RestJob(tmp_path, rest_server)
    job.add(9)
    assert Job.from_file(job.path, session=spark).run().succeeded
    job.add(9)
    refused, disordered, silent = job.lists[:3]
    rest_server.put(refused, first=[[403, {}, "no"]] * 9)
    rest_server.put(disordered, rows=['{"id": 9}', '{"id": 8}'], field="id", is_number=True)
    rest_server.put(silent, first=[[503, {"Retry-After": "0"}, ""]] * 99)
    rows = Job.from_file(job.path).status().datasets
    before = {row.dataset: row.positions for row in rows}
    assert {row.extract and (row.extract.namespace, row.extract.table) for row in rows} == {
        ("rest", name) for name in before
    }
    result = Job.from_file(job.path, session=spark).run()
    assert not result.succeeded
    after = {row.dataset: row.positions for row in Job.from_file(job.path).status().datasets}
    assert sorted(name for name in before if before[name] == after[name]) == sorted((refused, disordered, silent))
    job.add(9)
    assert Job.from_file(job.path, session=spark).run().succeeded
    assert job.published() == job.expected()
    assert Job.from_file(job.path).audit(deep=True).exact


def test_example_job_file_runs(
    tmp_path: Path, spark: SparkSession, rest_server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = [{"id": n, "title": f"t{n}", "updated_at": f"2024-01-31T12:00:{n // 2:02d}Z"} for n in range(9)]
    rest_server.put("tickets", rows=list(map(json.dumps, tickets)), field="updated_at")
    comments = [{"id": n, "text": "x"} for n in range(5)]
    rest_server.put("comments", rows=list(map(json.dumps, comments)), field="id", is_number=True)
    paths = [f"paths.{name}={tmp_path / name}" for name in ("store", "staging", "output")]
    here = [f"source.url={rest_server.url}/body/{{dataset}}", "source.paging.path=next"]
    path = PACKAGE_ROOT / "conf" / "jobs" / "rest-to-parquet.yaml"
    for _ in range(2):
        assert Job.from_file(path, overrides=[*paths, *here], session=spark).run().succeeded
    tables = {name: ds.dataset(str(tmp_path / "output" / name)).to_table() for name in ("tickets", "comments")}
    assert tables["tickets"]["id"].to_pylist() == list(range(9))
    assert tables["comments"]["id"].to_pylist() == list(range(5))


@pytest.mark.slow
def test_runs_killed_while_reading_and_in_mid_commit_publish_each_record_once(
    tmp_path: Path, rest_server: RestServer
) -> None:
    job, kills = RestJob(tmp_path, rest_server), 0
    for attempt in range(5):
        is_read = attempt == 2  # killed while it reads
        job.add(30, delay_s=0.2 if is_read else 0)
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start(f"run-{attempt}") as run:
            while not run.has_ended and not watcher.pending():
                if is_read and any(rest_server.asked(name) for name in job.lists):
                    time.sleep(0.5)
                    break
                run.wait(0.002)
            kills += not run.has_ended
            run.kill()
    job.add(10)
    command = [sys.executable, "-m", "distcommit", "run", str(job.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert kills >= 2, "too few runs were killed"
    assert job.published() == job.expected()
    audit = Job.from_file(job.path).audit(deep=True)
    assert audit.exact
    assert sum(row.published for row in audit.partitions) == job.expected().total()
