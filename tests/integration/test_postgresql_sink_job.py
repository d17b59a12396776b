"""Kafka topics to tables of PostgreSQL by a job file: killed at random moments, exact in the end by plain SQL."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg import sql

from distcommit import Job
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.jobs.victims import strike
from tests.servers.postgresql import PostgresServer

TOPICS = {f"topic-{number:02d}": 2 for number in range(12)}
KILLS = 3


def write_job(job: KafkaJob, server: PostgresServer, schema: str, **sink: Any) -> None:
    """The job file, with a sink instead of files; its password is in a file of its own."""
    secret = job.folder / "password"
    secret.write_text(server.password + "\n")
    with server.connect() as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    job.write(commit={"buckets": 4, "min_interval_ms": 0})
    written = yaml.safe_load(job.path.read_text())
    where = {"type": "postgresql", "url": server.url, "password": f"${{file:{secret}}}", "schema": schema}
    written["sink"] = {**where, **sink}
    job.path.write_text(yaml.safe_dump(written))


def offsets(server: PostgresServer, schema: str) -> dict[str, list[tuple[int, int]]]:
    """Partition and offset of each row, in order, by table."""
    with server.connect() as connection:
        asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'distcommit_ledger'"
        tables = [name for (name,) in connection.execute(asked, (schema,)).fetchall()]
        every = sql.SQL("SELECT kafka_partition, kafka_offset FROM {} ORDER BY 1, 2")
        return {table: connection.execute(every.format(sql.Identifier(schema, table))).fetchall() for table in tables}


def in_doubt(server: PostgresServer) -> int:
    """Prepared transactions, and open ones of committers."""
    with server.connect() as connection:
        (prepared,) = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() or (0,)
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'distcommit'"
        (open_ones,) = connection.execute(asked).fetchone() or (0,)
    return int(prepared) + int(open_ones)


@pytest.mark.slow
def test_killed_at_random_moments_each_record_is_there_once(tmp_path: Path, postgres_server: PostgresServer) -> None:
    rng, each = random.Random(17), 0
    with kafka_job(tmp_path, TOPICS) as job:
        write_job(job, postgres_server, "killed")
        for _ in range(KILLS):
            job.produce(300)
            each += 300
            with job.start() as run:
                before = sum(map(len, offsets(postgres_server, "killed").values()))
                begun_s = time.monotonic()
                while run.wait(0.002) is None and time.monotonic() < begun_s + 120:
                    if sum(map(len, offsets(postgres_server, "killed").values())) > before:  # some are committed
                        break
                time.sleep(rng.random() * 0.3)
                assert strike(run, "all", signal.SIGKILL, rng), "it had ended before"
        job.run()
        expected = [(partition, offset) for partition in range(2) for offset in range(each)]
        assert offsets(postgres_server, "killed") == dict.fromkeys(TOPICS, expected)
        status = Job.from_file(job.path).status()
        assert {row.status for row in status.datasets} == {"idle"}
        assert len(status.datasets) == len(TOPICS)
        job.assert_exact()
    assert in_doubt(postgres_server) == 0
