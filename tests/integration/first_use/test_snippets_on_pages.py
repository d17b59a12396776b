"""Python and SQL on the pages run as printed: on a small job, or on the server that the page is about.

`ELSEWHERE` names the tests that run the snippets of other pages, and `NOT_RUN` the snippets that no test can run.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import CommitterSink, Job
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresServer
from tests.unit.test_pages import DOCS, PAGES, ROOT

BLOCK = re.compile(r"^ *```(python|sql|promql|ini|json)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
TESTS = ROOT / "tests"
ELSEWHERE = {
    "get-started/kafka-to-parquet.md": "integration/first_use/test_kafka_page.py",
    "get-started/quickstart.md": "integration/first_use/test_quickstart.py",
    "guides/custom-constructs.md": "unit/test_custom_parts_page.py",
    "guides/custom-source.md": "unit/test_custom_parts_page.py",
    "connectors/sink-postgresql.md": "integration/sinks/test_postgresql_sink.py",
}
"""Tests that run all snippets of a page."""
NOT_RUN = {
    "time() - distcommit_last_success": "PromQL needs a Prometheus server; a test checks the names of the metrics",
    "distcommit_last_run_end_timestamp_seconds unless": "PromQL needs a Prometheus server",
    "case sensitive = yes": "settings of a Samba server; tests start theirs with another file",
    '{"files": [0, 0, "", NANOSECONDS': "its placeholders stand for values of one dataset",
}
"""Reasons, by the begin of a snippet."""
NAMES = ("clicks", "items", "orders")


def snippets(page: str) -> list[str]:
    """Return the snippets of a page, as printed."""
    return [text for _, text in BLOCK.findall((DOCS / page).resolve().read_text(encoding="utf-8"))]


class Place:
    """The folder of a job `job.yaml` on arriving files, with two runs and rejected records of each dataset."""

    def __init__(self, folder: Path, spark: SparkSession, **sections: Any) -> None:
        self.folder, self.spark, self.arrived = folder, spark, 0
        self.file = folder / "job.yaml"
        source = {"type": "files", "paths": [f"{folder}/in/{{dataset}}/*.jsonl"], "format": "jsonl"}
        fields = {"name": "string", "n": "int64", "at": "timestamp"}
        job = {
            "job": "clicks",
            "source": {**source, "min_file_age_s": 0},
            "converters": [{"type": "json", "fields": fields}],
            "on_rejected": "divert",
            "paths": {name: f"clicks/{name}" for name in ("store", "staging", "output")},
            "commit": {"buckets": 2},
            **sections,
        }
        self.file.write_text(yaml.safe_dump(job))
        (folder / "store").symlink_to(folder / "clicks" / "store")
        self.arrive()
        assert Job.from_file(self.file, session=spark).run().succeeded
        self.between = datetime.now(UTC)

    def arrive(self) -> None:
        """Put three records and one that is not JSON into the folder of each dataset."""
        self.arrived += 1
        for name in NAMES:
            record = {"name": name, "n": self.arrived, "at": "2026-03-02T00:00:00Z"}
            path = self.folder / "in" / name / f"{self.arrived}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([json.dumps(record)] * 3 + ["not JSON"]) + "\n")

    def show(self, *texts: str) -> dict[str, Any]:
        """Execute snippets, one after the other, and return their variables."""
        values: dict[str, Any] = {"spark": self.spark}
        for text in texts:
            exec(text.replace("/data/", f"{self.folder}/clicks/"), values)
        return values


@pytest.fixture(scope="module")
def first_place(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Place:
    return Place(tmp_path_factory.mktemp("job"), spark)


@pytest.fixture
def place(first_place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(first_place.folder)
    return first_place


@pytest.mark.parametrize("page", ["../../README.md", "reference/python-api.md"])
def test_snippet_that_runs_a_job_publishes_its_records(
    place: Place, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.arrive()
    (snippet,) = snippets(page)
    assert place.show(snippet)["result"].totals.records_published == 12, "with the rejected ones"
    assert capsys.readouterr().out.split()[0] == "True"


def test_snippet_about_snapshots_lists_the_datasets(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = snippets("concepts/snapshots.md")
    place.show(snippet)
    assert f"{list(NAMES)}" in capsys.readouterr().out


def test_snippets_for_readers_read_the_same_records(place: Place) -> None:
    first, data_source, filtered, older = snippets("guides/readers.md")
    lines = [line for line in first.splitlines() if "branch=" not in line]
    assert len(lines) == len(first.splitlines()) - 1
    shown = place.show("\n".join(lines))
    records = shown["table"].num_rows
    assert records >= 3
    assert len(shown["frame"]) == shown["lazy"].count_rows() == len(shown["relation"]) == records
    assert shown["rows"].count() == records
    assert shown["paths"]
    at_the_jvm = (text.replace("job.yaml", str(place.file)) for text in (data_source, filtered))
    shown = place.show(*at_the_jvm)  # whose current folder is another one
    assert (shown["frame"].count(), shown["few"].columns) == (records, ["name", "n"])
    assert shown["few"].count() == 2 * records
    place.arrive()
    assert Job.from_file(place.file, session=place.spark).run().succeeded
    past = place.show(older.replace("2026-05-01T12:00:00+02:00", place.between.isoformat()))["snapshot"]
    assert past.to_arrow("orders").num_rows == 3


def test_branch_of_the_snippet_for_readers_is_read(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = {"daily": {"sink": {"partition_by": {"column": "at", "granularity": "day"}}}, "whole": {}}
    forked = Place(tmp_path, spark, fork={"type": "all", "branches": sinks})
    monkeypatch.chdir(tmp_path)
    lines = [line for line in snippets("guides/readers.md")[0].splitlines() if "branch=" in line]
    assert forked.show("import distcommit", *lines)["snapshot"].to_arrow("orders").num_rows == 3


def test_snippet_about_rejected_records_shows_their_reasons(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = snippets("guides/rejected-records.md")
    assert len(place.show(snippet)["rejected"]) >= 1
    assert "malformed" in capsys.readouterr().out.lower()


def test_queries_of_duckdb_read_the_files_of_a_job(place: Place) -> None:
    (union,) = snippets("guides/schemas.md")
    assert set(duckdb.execute(union).df()["name"]) == {"clicks"}
    (outcomes,) = snippets("operate/status.md")
    ((outcome, count),) = duckdb.execute(outcomes).fetchall()
    assert outcome == "published"
    assert count >= 3


def test_snippets_about_streaming_publish_the_rows_of_a_query(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clicks").mkdir()
    shutil.copy(ROOT / "conf" / "jobs" / "stream-to-parquet.yaml", tmp_path / "clicks" / "stream.yaml")
    monkeypatch.chdir(tmp_path / "clicks")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"site": "a", "time": "2026-03-02T00:00:00Z"}\n')
    stream = spark.readStream.schema("site string, time timestamp").json(f"{tmp_path}/in")
    whole, trigger = snippets("guides/streaming.md")
    values: dict[str, Any] = {"stream": stream}
    exec(whole.replace("/data/", f"{tmp_path}/"), values)
    values["query"].processAllAvailable()
    values["query"].stop()
    assert values["job"].audit().records == 1
    checkpoints = f'stream.writeStream.option("checkpointLocation", "{tmp_path}/checkpoints/clicks")'
    exec(trigger.replace("stream.writeStream", checkpoints), values)
    (tmp_path / "in" / "2.json").write_text('{"site": "b", "time": "2026-03-02T00:00:00Z"}\n')
    values["query"].processAllAvailable()
    values["query"].stop()
    assert values["job"].audit().records == 2


def test_function_of_the_page_about_spark_transforms_a_frame(spark: SparkSession) -> None:
    (snippet,) = snippets("connectors/source-spark.md")
    values: dict[str, Any] = {}
    exec(snippet, values)
    frame = spark.createDataFrame([(1, 10.0, "a"), (2, 20.0, "b")], "id long, price double, comment string")
    assert [row.asDict() for row in values["large_orders"](frame, 15).collect()] == [{"id": 2, "price": 20.0}]


def test_class_of_the_page_about_sinks_is_a_sink() -> None:
    (snippet,) = snippets("guides/custom-sinks.md")
    values: dict[str, Any] = {}
    exec(snippet, values)
    assert issubclass(values["MySink"], CommitterSink)


def test_contract_of_the_page_about_custom_parts_passes(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "orders.log").write_bytes(b"".join(b"%d\n" % line for line in range(25_000)))
    (snippet,) = snippets("guides/custom-parts.md")
    program = snippets("guides/custom-source.md")[0] + "\n\n" + snippet
    (tmp_path / "test_lines.py").write_text(program.replace("/data/logs", str(logs)))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_lines.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_steps_of_their_page_are_released_after_a_quarantine(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "a.parquet").write_bytes(b"a")
    commit, release = snippets("guides/custom-steps.md")
    sealed, last, _ = commit.replace("/data/", f"{tmp_path}/").rpartition("store.get_commit_sequence")
    assert last
    values: dict[str, Any] = {}
    exec(sealed, values)
    values["store"].quarantine("my-job", "orders")
    assert values["store"].get_commit_sequence("my-job", "orders") is None
    exec(release, values)
    assert values["store"].get_commit_sequence("my-job", "orders") is not None


def test_setting_for_two_phase_commits_is_accepted_by_postgresql(postgres_server: PostgresServer) -> None:
    setting, _ = snippets("connectors/sink-postgresql-two-phase.md")
    with postgres_server.connect() as connection:
        connection.autocommit = True
        connection.execute(setting)
        connection.execute("ALTER SYSTEM RESET max_prepared_transactions")


def test_statement_that_lists_prepared_transactions_is_accepted_by_mariadb(mariadb_server: MariadbServer) -> None:
    (snippet,) = snippets("connectors/sink-mariadb-xa.md")
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(snippet)
        assert [column[0] for column in cursor.description or ()] == [
            "formatID",
            "gtrid_length",
            "bqual_length",
            "data",
        ]


def test_each_snippet_of_the_pages_is_run_by_a_test() -> None:
    for page, test in ELSEWHERE.items():
        assert snippets(page)
        assert Path(page).name in (TESTS / test).read_text(encoding="utf-8"), page
    own = Path(__file__).read_text(encoding="utf-8")
    shared = (TESTS / "unit" / "test_examples_on_pages.py", TESTS / "integration" / "test_postgresql_page.py")
    for path in PAGES:
        name = str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else f"../../{path.relative_to(ROOT)}"
        left = [text for _, text in BLOCK.findall(path.read_text(encoding="utf-8")) if not text.startswith((*NOT_RUN,))]
        if not left or name in ELSEWHERE or f'snippets("{name}")' in own or f'"{name}"' in own:
            continue
        assert name == "connectors/source-sql.md", name
        assert all("source-sql.md" in test.read_text(encoding="utf-8") for test in shared)
