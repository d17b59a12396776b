"""Jobs into Delta tables by the command line, killed at random moments; deltalake and pyarrow verify that the tables
are exact."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import boto3
import pyarrow.dataset as ds
import pytest
import yaml
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.sinks.base.table_names import plain_name
from tests.jobs.kafka_job import kafka_job
from tests.jobs.victims import strike
from tests.servers.s3 import S3Server

DATASETS, FILES, ROWS = 8, 3, 40
KILLS = 4


class OnDisk:
    """Tables in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tables"
        self.folder.mkdir()
        self.location, self.options = str(self.folder), dict[str, str]()

    def begun(self) -> bool:
        """Return whether any file was written."""
        return any(self.folder.iterdir())

    def data_files(self) -> set[str]:
        """Return all data files in the folder, referenced by a version or not."""
        return {str(file) for file in self.folder.rglob("*.parquet")}

    def uploads(self) -> int:
        """Return the unfinished multipart uploads."""
        return 0


class OnS3(OnDisk):
    """Tables in an S3 bucket of their own."""

    def __init__(self, bucket: str) -> None:
        self.bucket, self.client = bucket, boto3.client("s3")
        self.location, self.options = f"s3://{bucket}/tables", {"allow_http": "true"}

    def begun(self) -> bool:
        return bool(self._keys())

    def data_files(self) -> set[str]:
        return {f"s3://{self.bucket}/{key}" for key in self._keys() if key.endswith(".parquet")}

    def uploads(self) -> int:
        return len(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ()))

    def _keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.long)])
def tables(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnDisk:
    if request.param == "disk":
        return OnDisk(tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return OnS3(server.make_bucket())


def write_job(folder: Path, location: str) -> Path:
    """Write the job file, and files for each dataset; all datasets go to one table."""
    for dataset in range(DATASETS):
        inbox = folder / "in" / f"d{dataset}"
        inbox.mkdir(parents=True)
        for file in range(FILES):
            lines = [json.dumps({"id": f"d{dataset}/{file}/{row}", "n": row}) for row in range(ROWS)]
            (inbox / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    job = {
        "job": "to-delta",
        "source": {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.jsonl"],
            "format": "jsonl",
            "min_file_age_s": 0,
            "bytes_per_work_unit": 500,
        },
        "converters": [{"type": "json", "fields": {"id": "string", "n": "int64"}}],
        "sink": {"type": "delta", "location": location, "table": "events"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def live_files(folder: Path) -> list[str]:
    """Return the data files that the newest version of a table references."""
    files: list[str] = []
    for log in sorted((folder / "tables").glob("*/_delta_log")):
        with contextlib.suppress(TableNotFoundError):  # the table is being created
            files += (uri.removeprefix("file://") for uri in DeltaTable(log.parent).file_uris())
    return files


def run(path: Path, name: str) -> None:
    with RunProcess(["run", str(path), "--json"], path.parent / "out", path.parent / name) as process:
        assert process.wait(150) == 0, (path.parent / name).read_text()[-3000:]


@pytest.mark.slow
def test_runs_killed_at_any_moment_publish_each_record_once(tmp_path: Path, tables: OnDisk) -> None:
    path, chance = write_job(tmp_path, tables.location), random.Random(17)
    for attempt in range(KILLS):
        with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / f"err{attempt}") as process:
            deadline_s = time.monotonic() + 60
            while not tables.begun() and process.wait(0.05) is None:
                assert time.monotonic() < deadline_s
            process.wait(chance.uniform(0, 3))
            process.kill()
    for attempt in range(2):
        run(path, f"last{attempt}")
    expected = {f"d{d}/{file}/{row}" for d in range(DATASETS) for file in range(FILES) for row in range(ROWS)}
    table = DeltaTable(f"{tables.location}/events", storage_options=tables.options)
    assert Counter(table.to_pyarrow_table()["id"].to_pylist()) == dict.fromkeys(expected, 1)
    job = Job.from_file(path)
    assert {row.status for row in job.status().datasets} == {"idle"}
    audit = job.audit(deep=True)
    assert audit.exact, audit
    assert audit.records == len(expected)
    live = {uri.removeprefix("file://") for uri in table.file_uris()}
    assert tables.data_files() == live, "files of attempts that lost or died are gone"
    assert tables.uploads() == 0


def numbers(folder: Path) -> Counter[int]:
    """Return how often each produced record occurs in any table."""
    files = live_files(folder)
    values = ds.dataset(files, format="parquet").to_table()["value"].to_pylist() if files else []
    return Counter(json.loads(value)["n"] for value in values)


@pytest.mark.slow
@pytest.mark.long
def test_topics_in_separate_tables_are_exact_also_after_a_lost_store(tmp_path: Path) -> None:
    topics, rng = {f"topic-{number:02d}": 2 for number in range(12)}, random.Random(17)
    (tmp_path / "tables").mkdir()
    with kafka_job(tmp_path, topics) as job:
        sink = {"type": "delta", "location": str(tmp_path / "tables")}
        job.write(commit={"buckets": 4, "min_interval_ms": 0})
        job.path.write_text(yaml.safe_dump({**yaml.safe_load(job.path.read_text()), "sink": sink}))
        for _ in range(2):
            before = job.produced
            job.produce(100)
            with job.start() as process:
                begun_s = time.monotonic()
                while process.wait(0.002) is None and time.monotonic() < begun_s + 120:
                    if numbers(tmp_path).total() > before:  # some datasets are committed
                        break
                assert strike(process, "all", signal.SIGKILL, rng), "it had ended before"
        job.run()
        assert numbers(tmp_path) == dict.fromkeys(range(job.produced), 1)
        job.assert_exact()

        shutil.rmtree(tmp_path / "store")
        rebuilt = Job.from_file(job.path).rebuild()
        assert not rebuilt.problems, rebuilt
        job.produce(100)
        job.run()
        assert numbers(tmp_path) == dict.fromkeys(range(job.produced), 1)
        job.assert_exact()
        table = DeltaTable(tmp_path / "tables" / plain_name("topic-03"))
        table.delete(f"kafka_offset = {7}")
        assert not job.audit(deep=True).exact, "deleted rows are detected"
