"""Job files of Gobblin's repository (`tests/inputs/gobblin`), converted, run and audited on their sources."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from distcommit import Job
from distcommit.app.checks.job_check import check_file
from distcommit.app.migration.gobblin.convert_gobblin_job import convert_job
from tests.jobs.in_commit import killed_in_commit, run_of
from tests.jobs.kafka_job import PACKAGE_ROOT, KafkaJob, kafka_job
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records
from tests.servers.mariadb import MariadbServer

FILES = Path(__file__).parents[2] / "inputs" / "gobblin"


def converted(name: str, folder: Path, replaced: Mapping[str, str], more: str = "") -> Path:
    """Convert a file of Gobblin with other places, and return the job file."""
    text = (FILES / name).read_text()
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text + more)
    convert_job(folder / name, folder / "job.yaml")
    return folder / "job.yaml"


def run(path: Path) -> dict[str, Any]:
    """Run a job to its end, which must be a success, and audit it."""
    done = subprocess.run(
        [sys.executable, "-m", "distcommit", "run", str(path), "--json"],
        capture_output=True,
        text=True,
        cwd=PACKAGE_ROOT,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert Job.from_file(path).audit().exact
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def read_avro(files: Iterable[Path]) -> list[Any]:
    """Return the rows of Avro files."""
    rows: list[Any] = []
    for file in files:
        with file.open("rb") as data:
            rows += fastavro.reader(data)
    return rows


def write_avro(path: Path, rows: list[dict[str, Any]], fields: Mapping[str, Any]) -> None:
    """Write an Avro file that is old enough to be read."""
    schema = {"type": "record", "name": "row", "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), rows)
    os.utime(path, (time.time() - 60,) * 2)


@pytest.mark.slow
def test_kafka_job_of_gobblin_is_exact_after_runs_killed_in_commit(tmp_path: Path) -> None:
    topics = {f"t{number:02d}": 1 for number in range(20)}
    (tmp_path / "producer").mkdir()
    with kafka_job(tmp_path / "producer", topics) as produced:
        places = {"hdfs://namenode:9000": "file:///", "=/gobblin": f"={tmp_path}/gobblin"}
        places["kafka:9092"] = produced.broker.bootstrap_servers
        path = converted("kafka-hdfs.pull", tmp_path, places)
        job = KafkaJob(tmp_path, produced.broker, topics)
        kills = 0
        for number in range(6):
            job.produce(10)
            kills += killed_in_commit(path, partial(run_of, path, f"killed-{number}"))
            if kills:
                break
        assert kills, "no run was killed in the middle of its commit"
        run(path)
        job.assert_exact()


def test_monthly_folders_of_gobblin_become_daily_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_WORK_DIR", str(tmp_path))
    source = tmp_path / "months"
    places = {"hdfs://localhost:8020": "file:///", "/data/months/changes": str(source), "=snappy": "=NOCOMPRESSION"}
    path = converted("hdfs-monthly-to-hdfs-daily.pull", tmp_path, places)
    time_type = {"type": "long", "logicalType": "timestamp-micros"}
    for month in (1, 2):
        days = [dt.datetime(2015, month, day, 12, tzinfo=dt.UTC) for day in (1, 2, 3)]
        rows = [{"id": month * 10 + number, "change_dt": day} for number, day in enumerate(days)]
        write_avro(source / f"monthly/2015/{month:02d}/a.avro", rows, {"id": "int", "change_dt": time_type})
    assert run(path)["totals"]["records_published"] == 6
    published = [*(tmp_path / "output/changes").rglob("*.avro")]
    assert len({file.parent for file in published}) == 6
    assert sorted(row["id"] for row in read_avro(published)) == [10, 11, 12, 20, 21, 22]


def test_avro_files_of_gobblin_become_rows_of_a_table(
    tmp_path: Path, mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_PASSWORD", mariadb_server.password)
    places = {
        "/data/avro": str(tmp_path / "avro"),
        "database:3306": f"127.0.0.1:{mariadb_server.port}",
        "=writer": "=reader",
        "database_name=shop": "database_name=gobblin_sink",
    }
    path = converted("avro-to-mysql.pull", tmp_path, places)
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE gobblin_sink")
    rows = [{"id": number, "businessUnit": f"unit {number}", "geoRegion": "EMEA"} for number in range(5)]
    write_avro(tmp_path / "avro/a.avro", rows, {"id": "int", "businessUnit": "string", "geoRegion": "string"})
    run(path)
    with mariadb_server.connect("gobblin_sink") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, business_unit, geo_region FROM units ORDER BY id")
        assert list(cursor.fetchall()) == [(number, f"unit {number}", "EMEA") for number in range(5)]


def test_table_of_gobblin_is_read_up_to_its_lookback(
    tmp_path: Path, mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", mariadb_server.password)
    places = {
        "host=database": "host=127.0.0.1",
        "port=3306": f"port={mariadb_server.port}",
        "schema=shop": "schema=gobblin_source",
    }
    path = converted("mysql-table_append.pull", tmp_path, places)
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE gobblin_source")
    with mariadb_server.connect("gobblin_source") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY, created TIMESTAMP NOT NULL)")
        cursor.execute("INSERT INTO orders VALUES (1, NOW() - INTERVAL 3 DAY), (2, NOW() - INTERVAL 2 DAY), (3, NOW())")
    assert run(path)["totals"]["records_published"] == 2
    assert run(path)["totals"]["records_published"] == 0


SAMPLING = """\
from distcommit.constructs.record_converter import RecordConverter


class SamplingConverter(RecordConverter):
    def convert_schema(self, schema, unit):
        return schema

    def convert_record(self, output_schema, record, unit):
        return [record] if record["kafka_offset"] % 10 == 0 else []
"""


@pytest.mark.slow
def test_stream_of_gobblin_runs_once_its_class_is_written(
    tmp_path: Path, kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers})
    topics = [f"{uuid.uuid4().hex[:8]}-{name}" for name in ("clicks", "sample")]
    for topic, created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).items():
        assert topic in topics
        created.result(30)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap_servers})
    for number in range(30):
        producer.produce(topics[0], str(number))
    assert producer.flush(30) == 0
    places = {"localhost:9092": kafka_server.bootstrap_servers, "=clicks_sample": f"={topics[1]}"}
    more = f"bootstrap.with.offset=earliest\ngobblin.streaming.kafka.topic.singleton={topics[0]}\n"
    places["gobblin.streaming.kafka.topic.singleton=clicks\n"] = ""
    path = converted("streaming-kafka-kafka.pull", tmp_path, places, more)
    assert not check_file(path).passed
    (tmp_path / "gobblin_ports.py").write_text(SAMPLING)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    run(path)
    values = [record.value() for record in committed_records(kafka_server.bootstrap_servers, [topics[1]])]
    assert values == [b"0", b"10", b"20"]
