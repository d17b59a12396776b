"""A killed run's prepared transactions are rolled back by the next run, although a quarantined dataset keeps its own
(`distcommit run` on a real PostgreSQL server)."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
import yaml

from tests.integration.sinks.test_table_sink_jobs import InPostgresql, write_job
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.jobs.victims import strike
from tests.servers.postgresql import PostgresServer

FEW, MANY = 200, 4_000


def prepared(place: InPostgresql) -> set[str]:
    return {gid for (gid,) in place.sql("SELECT gid FROM pg_prepared_xacts")}


def move_ledger_of_quarantined(place: InPostgresql, change: str) -> None:
    """Give the first dataset's row another epoch than the store knows, or the previous one again."""
    place.sql(f"UPDATE killed.distcommit_ledger SET epoch = epoch {change} WHERE dataset = 'topic-00'")


def run_killed_with_prepared_attempts(job: KafkaJob, place: InPostgresql, sealed: set[str]) -> None:
    with job.start() as run:
        while not prepared(place) - sealed:
            assert run.wait(0.002) is None, "it had ended before"
        assert strike(run, "all", signal.SIGKILL, random.Random(17))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_prepared_attempts_of_a_killed_run_end_with_the_next_run_beside_a_quarantined_dataset(
    tmp_path: Path, preparing_server: PostgresServer
) -> None:
    place = InPostgresql(tmp_path, preparing_server)
    place.settings = {"two_phase": True}
    with kafka_job(tmp_path, {"topic-00": 1, "topic-01": 2}) as job:
        write_job(job, place.sink())
        job.path.write_text(yaml.safe_dump({**yaml.safe_load(job.path.read_text()), "commit": {"buckets": 1}}))
        job.produce(FEW)
        job.run()
        place.sql('ALTER TABLE killed."topic-01" ADD CHECK (kafka_partition = 0 OR kafka_offset < 200)')
        move_ledger_of_quarantined(place, "+ 1000")
        job.produce(FEW)
        assert job.cli("run")[0] != 0, "one dataset is quarantined, and a partition of the other one is refused"
        before = prepared(place)
        assert len(before) == 2, "one attempt of each dataset"
        job.cli("recover")
        sealed = prepared(place)
        assert len(sealed) == 1, "only the quarantined attempt may still be committed"
        assert sealed < before
        place.sql('ALTER TABLE killed."topic-01" DROP CONSTRAINT "topic-01_check"')  # would wait for a loser's locks
        job.produce(MANY)
        run_killed_with_prepared_attempts(job, place, sealed)
        job.cli("run")
        assert prepared(place) == sealed
        move_ledger_of_quarantined(place, "- 1000")
        assert job.cli("dataset release", "topic-00", "retry")[0] == 0
        job.run()
        job.assert_exact()
        assert place.in_doubt() == 0
