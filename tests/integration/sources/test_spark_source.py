"""Spark's own readers as sources: Parquet as snapshots, and PostgreSQL over JDBC by a watermark column.

Runs are killed in mid-commit; plain Python verifies the output.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
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
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from tests.jobs.in_commit import killed_in_commit, run_of
from tests.servers.java import jars
from tests.servers.postgresql import PostgresServer
from tests.servers.process import ServerUnavailableError

TABLES = [f"t{number}" for number in range(6)]
Rows = list[tuple[int, str]]


def spark_job(folder: Path, source: dict[str, Any], **sections: Any) -> Path:
    path = folder / "job.yaml"
    job = {
        "job": "frames",
        "source": {"type": "spark", **source},
        "sink": {"publish": "append" if "watermark" in source else "replace"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "min_interval_ms": 60_000},
        **sections,
    }
    path.write_text(yaml.safe_dump(job))
    return path


def parquet(folder: Path, names: Iterable[str] = TABLES) -> dict[str, Any]:
    return {"format": "parquet", "datasets": {name: {"path": str(folder / "in" / name)} for name in names}}


def put(folder: Path, table: str, file: str, ids: Sequence[int | None], text: str) -> None:
    (folder / "in" / table).mkdir(parents=True, exist_ok=True)
    columns = {"id": pa.array(ids, pa.int64()), "s": [text] * len(ids)}
    pq.write_table(pa.table(columns), folder / "in" / table / file)


def published(folder: Path, *, newest: bool = False) -> Counter[tuple[str, int, str]]:
    """Return table, id and text of each row, as a reader without knowledge of commits sees them.

    With `newest`, only the file with the highest epoch of each table, as replaced files stay until the next run.
    """
    counts: Counter[tuple[str, int, str]] = Counter()
    paths = sorted((folder / "output").glob("*/**/*.parquet"))
    for path in {file.parent if newest else file: file for file in paths}.values():
        rows = ds.dataset(str(path)).to_table()
        table = path.relative_to(folder / "output").parts[0]
        counts.update(zip([table] * len(rows), rows["id"].to_pylist(), rows["s"].to_pylist(), strict=True))
    return counts


def run(path: Path, spark: SparkSession) -> RunResult:
    return Job.from_file(path, session=spark).run()


def problems(result: RunResult) -> str:
    return "; ".join(reason.text for reason in result.reasons.entries)


def shown(path: Path) -> list[str]:
    """Return the command that `status` prints for the one dataset that could not be planned, from its name on."""
    (trouble,) = (problem for problem in Job.from_file(path).status().problems if problem.id == "PLAN_FAILED")
    return shlex.split(trouble.command)[1:]


def killed(path: Path, number: int) -> bool:
    """Kill a run as soon as it has sealed a dataset, and return whether it was caught."""
    return killed_in_commit(path, partial(run_of, path, f"killed-{number}"))


def ran(path: Path) -> None:
    line = [sys.executable, "-m", "distcommit", "run", str(path), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_each_run_replaces_the_previous_one_also_with_an_empty_snapshot(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "t0", "a.parquet", [1, 2, 2], "old")
    path = spark_job(tmp_path, parquet(tmp_path, ["t0", "gone"]))
    for ids in ([7, 8], []):
        result = run(path, spark)
        assert "PATH_NOT_FOUND" in problems(result), "the other dataset's problem is its own"
        put(tmp_path, "t0", "a.parquet", ids, "new")
    run(path, spark)
    run(path, spark)  # deletes the superseded files of the previous run
    assert published(tmp_path) == Counter()
    assert Job.from_file(path).audit(deep=True).exact
    assert [file.name for file in (tmp_path / "staging").iterdir()] == [OWNERSHIP_FOLDER], "the staged files are gone"


def test_rows_of_a_watermark_column_are_read_once_and_its_newest_group_waits(
    tmp_path: Path, spark: SparkSession
) -> None:
    path = spark_job(tmp_path, {**parquet(tmp_path, ["t0"]), "watermark": "id", "lookback": 0})
    put(tmp_path, "t0", "a.parquet", [5, 1, 3, 3], "a")
    assert run(path, spark).succeeded
    assert published(tmp_path) == Counter({("t0", 1, "a"): 1, ("t0", 3, "a"): 2})
    put(tmp_path, "t0", "b.parquet", [9, 5, None], "b")
    assert "NULL in 1 row" in problems(run(path, spark))
    expected = Counter({("t0", 1, "a"): 1, ("t0", 3, "a"): 2, ("t0", 5, "a"): 1, ("t0", 5, "b"): 1})
    assert published(tmp_path) == expected
    run(path, spark)
    assert published(tmp_path) == expected
    other = spark_job(tmp_path, {**parquet(tmp_path, ["t0"]), "watermark": "s", "lookback": 0})
    assert "column 's' of integers or timestamps; found type string" in problems(run(other, spark))
    snapshots = spark_job(tmp_path, parquet(tmp_path, ["t0"]))
    assert "expected a position of snapshot" in problems(run(snapshots, spark))


@pytest.mark.slow
@pytest.mark.long
def test_changed_options_and_a_reset_column_stop_a_dataset_until_the_printed_command(
    tmp_path: Path, spark: SparkSession
) -> None:
    source = {**parquet(tmp_path, ["t0"]), "watermark": "id", "lookback": 0}
    put(tmp_path, "t0", "a.parquet", [1, 3], "a")
    assert run(spark_job(tmp_path, source), spark).succeeded
    put(tmp_path, "t0", "b.parquet", [2, 9], "late, or of other options")
    path = spark_job(tmp_path, {**source, "options": {"pathGlobFilter": "b.*"}})
    assert "was read by another reader or other options" in problems(run(path, spark))
    assert shown(path) == ["dataset", "set-watermark", str(path), "t0", '{"": 3}']
    path = spark_job(tmp_path, source)
    (tmp_path / "in" / "t0" / "b.parquet").unlink()
    put(tmp_path, "t0", "a.parquet", [1, 2], "anew")
    assert "ends before the stored position" in problems(run(path, spark))
    assert published(tmp_path) == Counter({("t0", 1, "a"): 1})
    assert shown(path) == ["dataset", "set-watermark", str(path), "t0", "null"]
    subprocess.run([sys.executable, "-m", "distcommit", *shown(path)], check=True, capture_output=True)
    assert run(path, spark).succeeded
    assert published(tmp_path) == Counter({("t0", 1, "a"): 1, ("t0", 1, "anew"): 1})
    assert Job.from_file(path).audit(deep=True).exact


@pytest.mark.slow
@pytest.mark.long
def test_parquet_snapshots_are_complete_and_newest_in_spite_of_kills(tmp_path: Path) -> None:
    path, kills = spark_job(tmp_path, parquet(tmp_path)), 0
    for version in range(3):
        for table in TABLES:
            put(tmp_path, table, "all.parquet", [*range(1000 + version)], f"v{version}")
        kills += killed(path, version)
    assert kills, "no run was killed in the middle of its commit"
    ran(path)
    assert published(tmp_path, newest=True) == Counter((table, n, "v2") for table in TABLES for n in range(1002))
    assert Job.from_file(path).audit(deep=True).exact
    assert [file.name for file in (tmp_path / "staging").iterdir()] == [OWNERSHIP_FOLDER], "the staged files are gone"


@pytest.mark.slow
def test_jdbc_rows_are_published_once_in_spite_of_kills(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """Times in a zone other than the database's and the machine's; the password comes from a file."""
    try:
        (driver,) = jars("postgresql-jdbc").glob("postgresql*.jar")
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    secret = tmp_path / "password"
    secret.write_text(postgres_server.password)
    host = postgres_server.url.partition("@")[2]
    source = {
        "format": "jdbc",
        "options": {"url": f"jdbc:postgresql://{host}", "user": "reader", "driver": "org.postgresql.Driver"},
        "password": f"${{file:{secret}}}",
        "datasets": {table: {"dbtable": f"spark_{table}"} for table in TABLES},
        "watermark": "at",
        "lookback": 60,
    }
    conf = {"spark.jars": str(driver), "spark.sql.session.timeZone": "Asia/Tokyo"}
    path, kills = spark_job(tmp_path, source, spark={"master": "local[2,4]", "conf": conf}), 0
    with postgres_server.connect() as connection:
        for number, table in enumerate(TABLES):
            kind = "timestamptz" if number % 2 else "timestamp"
            connection.execute(f"CREATE TABLE spark_{table} (id int, s text, at {kind})")
    expected: Counter[tuple[str, int, str]] = Counter()
    for batch in range(4):
        with postgres_server.connect() as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            for table in TABLES:
                connection.execute(  # three rows of each time, days apart
                    f"INSERT INTO spark_{table} SELECT n, '{batch}', '2024-03-01'::timestamp + n / 3 * interval '11h'"
                    " FROM generate_series(%s::int, %s::int) n",
                    (batch * 300, batch * 300 + 299),
                )
        expected.update((table, n, str(batch)) for table in TABLES for n in range(batch * 300, batch * 300 + 300))
        if batch < 3:
            kills += killed(path, batch)
    assert kills, "no run was killed in the middle of its commit"
    ran(path)
    with postgres_server.connect() as connection:
        for table in TABLES:
            connection.execute(f"DROP TABLE spark_{table}")
    newest = {(table, n, "3") for table in TABLES for n in (1197, 1198, 1199)}
    assert published(tmp_path) == expected - Counter(newest), "the newest group waits"
    assert Job.from_file(path).audit(deep=True).exact
