"""Jobs of many buckets into PostgreSQL, by `distcommit run`: commits share connections, and nothing is lost or doubled
if the server restarts or the run is killed among commits."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from tests.integration.operate.test_telemetry import SOURCE
from tests.integration.runs.test_serve import RECORDS, write_job
from tests.integration.sinks.test_sink_metrics import command
from tests.integration.sinks.test_table_sink_jobs import InPostgresql
from tests.jobs.victims import strike
from tests.servers.postgresql import PostgresServer

NAMES = [f"dataset-{number:03d}" for number in range(100)]
BUCKETS, WORKERS = 50, 2
ANSWERED = dict.fromkeys(NAMES, RECORDS)
_BY_SINK = re.compile(r"connection authorized: .*application_name=distcommit")


@pytest.fixture(scope="module")
def logging_server() -> Iterator[PostgresServer]:
    with PostgresServer("log_connections=on", "max_prepared_transactions=200") as server:
        yield server


def write_many(folder: Path, server: PostgresServer, **settings: bool) -> tuple[Path, InPostgresql]:
    """Write a job whose buckets are committed by tasks of their own."""
    place = InPostgresql(folder, server)
    commit = {"buckets": BUCKETS, "min_interval_ms": 0}
    spark = {"master": f"local[{WORKERS}]", "partitions": BUCKETS}
    sink = {**place.sink(), **settings}
    return write_job(folder, "many", SOURCE, {"names": NAMES}, commit=commit, spark=spark, sink=sink), place


def opened(server: PostgresServer) -> int:
    """Return how many connections sinks have opened, by the server's log."""
    return len(_BY_SINK.findall((server.folder / "log").read_text(errors="replace")))


def published(place: InPostgresql) -> dict[str, int]:
    """Return the number of rows by table."""
    return {table: len(rows) for table, rows in by_table(place).items() if rows}


def by_table(place: InPostgresql) -> dict[str, list[tuple[str]]]:
    tables = place.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'killed' AND tablename LIKE 'dataset%'")
    return {table: place.sql(f'SELECT "offset" FROM killed."{table}"') for (table,) in tables}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("two_phase", [False, pytest.param(True, marks=pytest.mark.long)])
def test_workers_of_a_run_share_a_connection_among_their_commits(
    tmp_path: Path, logging_server: PostgresServer, two_phase: bool
) -> None:
    path, place = write_many(tmp_path, logging_server, two_phase=two_phase)
    before = opened(logging_server)
    code, _, errors = command(tmp_path, "run", str(path))
    assert code == 0, errors
    assert published(place) == ANSWERED
    of_a_worker = 2 if two_phase else 1
    assert opened(logging_server) - before <= of_a_worker * WORKERS + 2, "two are for processes that replace others"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["server", "run"])
def test_server_restarted_or_run_killed_among_commits_publishes_each_record_once(
    tmp_path: Path, logging_server: PostgresServer, what: str
) -> None:
    path, place = write_many(tmp_path, logging_server)
    with RunProcess(["run", str(path)], tmp_path / "out", tmp_path / "err") as run:
        begun_s = time.monotonic()
        while not place.sql("SELECT 1 FROM pg_tables WHERE schemaname = 'killed' AND tablename LIKE 'dataset%'"):
            assert time.monotonic() < begun_s + 240
            assert run.wait(0.01) is None, run.stderr.read_text()[-3000:]
        if what == "run":
            assert strike(run, "all", signal.SIGKILL, random.Random(3))
        else:
            logging_server.restart()
        assert run.wait(240) is not None
    assert len(published(place)) < len(NAMES) or what == "server", "the run had ended before"
    code, _, errors = command(tmp_path, "run", str(path))
    assert code == 0, errors
    assert published(place) == ANSWERED
    assert all(len(rows) == len(set(rows)) for rows in by_table(place).values())
    assert Job.from_file(path).audit().exact
