"""Change events of Debezium to tables by a job file: runs are killed in their commits, and tables equal the source."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tests.integration.sinks.test_table_sink_jobs import InMariadb, InPostgresql, InSqlite, Place
from tests.jobs.in_commit import killed_in_commit, run_of
from tests.jobs.kafka_job import KafkaJob, kafka_job

TABLES = [f"shop_{number:02d}" for number in range(10)]
KEYS, CHANGES, PARTITIONS = 25, 120, 3
DEBEZIUM = {"type": "debezium", "fields": {"id": "int64", "name": "string", "changed": "int64"}}


@dataclass
class SourceDatabase:
    """Tables whose changes Debezium would publish.

    Attributes:
        brokers: the brokers of the topics, one for each table.
        rows: the rows of each table by key.
        position: the position in the database's log.
        routing: a number that is added to each key before it is assigned to a partition.
        sent: the number of produced records.
    """

    brokers: str
    rng: random.Random
    rows: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {table: {} for table in TABLES})
    position: int = 24_000_000
    routing: int = 0
    sent: int = 0

    def change(self, count: int) -> None:
        """Change each table that many times."""
        self._produce([change for table in TABLES for _ in range(count) for change in self._changed(table)])

    def snapshot(self) -> None:
        """Send all rows again, as a new snapshot does."""
        self._produce(
            [
                (table, key, self._event("r", None, row))
                for table, rows in self.rows.items()
                for key, row in rows.items()
            ]
        )

    def send(self, table: str, key: int, value: Any) -> None:
        self._produce([(table, key, value)])

    def _changed(self, table: str) -> list[tuple[str, int, Any]]:
        rows, key, action = self.rows[table], self.rng.randrange(KEYS), self.rng.random()
        before = rows.get(key)
        if before is None:
            rows[key] = self._row(key)
            return [(table, key, self._event("c", None, rows[key]))]
        if action < 0.5:
            rows[key] = self._row(key)
            return [(table, key, self._event("u", before, rows[key]))]
        del rows[key]
        deleted = [(table, key, self._event("d", before, None)), (table, key, None)]
        other = self.rng.randrange(KEYS)
        if action < 0.8 or other in rows:
            return deleted
        rows[other] = self._row(other)
        return [*deleted, (table, other, self._event("c", None, rows[other]))]

    def _row(self, key: int) -> dict[str, Any]:
        self.position += self.rng.randrange(1, 200)
        return {"id": key, "name": self.rng.choice(["Ada", "Böb", None]), "changed": self.position}

    def _event(self, op: str, before: Any, after: Any) -> dict[str, Any]:
        self.position += 1
        log = {"file": f"binlog.{self.position >> 16:06}", "pos": self.position & 0xFFFF}
        source = {"connector": "mysql", **log, "ts_ms": 1_700_000_000_000, "snapshot": "false"}
        payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_001}
        return payload if self.rng.random() < 0.5 else {"schema": {"type": "struct"}, "payload": payload}

    def _produce(self, changes: list[tuple[str, int, Any]]) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 5})
        for table, key, value in changes:
            data = None if value is None else json.dumps(value).encode()
            producer.produce(table, data, json.dumps({"id": key}), partition=(key + self.routing) % PARTITIONS)
            self.sent += 1
        assert producer.flush(60) == 0


def write_job(job: KafkaJob, place: Place, **sections: Any) -> None:
    """Write a job that mirrors each topic into the table of its name."""
    job.write(
        commit={"buckets": 4, "min_interval_ms": 0},
        source={"records_per_work_unit": 50},
        converters=[DEBEZIUM],
        on_rejected="divert",
        **sections,
    )
    written = yaml.safe_load(job.path.read_text())
    sink = {**place.sink(), "mode": "mirror", "keys": ["id"], "version": "_position", "create": True}
    job.path.write_text(yaml.safe_dump({**written, "sink": sink}))


def assert_equal(place: Place, source: SourceDatabase) -> None:
    """Compare each table with the source's, row by row."""
    for table in TABLES:
        expected = sorted((row["id"], row["name"], row["changed"]) for row in source.rows[table].values())
        rows = place.sql(f"SELECT id, name, changed FROM {place.named(table)} ORDER BY id")
        assert [tuple(row) for row in rows] == expected, table


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return InSqlite(tmp_path)
    kinds = {"postgresql": (InPostgresql, "postgres_server"), "mariadb": (InMariadb, "mariadb_server")}
    kind, server = kinds[request.param]
    own_place: Place = kind(tmp_path, request.getfixturevalue(server))
    return own_place


@pytest.mark.slow
def test_tables_equal_the_source_after_killed_runs_a_new_snapshot_and_moved_keys(tmp_path: Path, place: Place) -> None:
    with kafka_job(tmp_path, dict.fromkeys(TABLES, PARTITIONS)) as job:
        source, kills = SourceDatabase(job.broker.bootstrap_servers, random.Random(23)), 0
        write_job(job, place)
        for number in range(3):
            source.change(CHANGES)
            source.routing += 1  # each key moves to another partition
            if number == 1:
                source.snapshot()
            kills += killed_in_commit(job.path, partial(run_of, job.path, f"killed-{number}"))
        assert kills, "no run was killed in the middle of its commit"
        source.change(CHANGES)
        job.run()
        assert_equal(place, source)
        audit = job.audit()
        assert audit.exact, audit
        job.run()
        assert_equal(place, source)


def test_bad_events_are_rejected_or_stop_their_dataset_and_others_continue(tmp_path: Path) -> None:
    place = InSqlite(tmp_path)
    with kafka_job(tmp_path, dict.fromkeys(TABLES, PARTITIONS)) as job:
        source = SourceDatabase(job.broker.bootstrap_servers, random.Random(7))
        write_job(job, place)
        source.change(20)
        bad: list[Any] = [
            {"op": "t", "source": {"ts_ms": 1}},
            {"op": "d", "before": None, "source": {"ts_ms": 2}},
            {"op": "d", "before": {"name": "without a key"}, "source": {"ts_ms": 3}},
            {"op": "u", "after": {"id": None, "name": "null key"}, "source": {"ts_ms": 4}},
            {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "source": {"ts_ms": 5}},
            {"op": "c", "after": {"id": "text"}, "source": {"ts_ms": 5}},
            {"id": 1, "name": "not an envelope"},
        ]
        for value in bad:
            source.send(TABLES[0], 1, value)
        job.run()
        assert_equal(place, source)
        audit = job.audit()
        assert audit.exact
        assert audit.rejected == len(bad)
        _, checked, _ = job.cli("check")
        assert "loses changes of PostgreSQL" in str(checked)

        place.sql(f"ALTER TABLE {TABLES[1]} DROP COLUMN changed")
        frozen = place.sql(f"SELECT id, name FROM {TABLES[1]} ORDER BY id")
        source.change(20)
        code, result, _ = job.cli("run")
        assert code != 0
        assert "has no column 'changed'" in str(result)
        assert place.sql(f"SELECT id, name FROM {TABLES[1]} ORDER BY id") == frozen
        place.sql(f"ALTER TABLE {TABLES[1]} ADD COLUMN changed INTEGER")
        assert job.cli("dataset release", TABLES[1], "retry")[0] == 0
        job.run()
        untouched = [table for table in TABLES if table != TABLES[1]]
        for table in untouched:
            expected = sorted((row["id"], row["changed"]) for row in source.rows[table].values())
            assert place.sql(f"SELECT id, changed FROM {table} ORDER BY id") == expected
        assert {key for (key,) in place.sql(f"SELECT id FROM {TABLES[1]}")} == {*source.rows[TABLES[1]]}
        assert job.audit().exact


def test_job_without_a_key_or_with_a_shared_table_is_rejected_before_it_reads(tmp_path: Path) -> None:
    place = InSqlite(tmp_path)
    with kafka_job(tmp_path, dict.fromkeys(TABLES, PARTITIONS)) as job:
        write_job(job, place)
        written = yaml.safe_load(job.path.read_text())
        for change, message in (
            ({"keys": []}, "keys must be set with mode: mirror"),
            ({"table": "all"}, "two sources of one table have no common order"),
            ({"keys": ["no_such"]}, "do not have a column that the setting keys names"),
            ({"operation": "op"}, "the operation column must be text"),
            ({"version": "_lsn"}, "the version column must be"),
        ):
            job.path.write_text(yaml.safe_dump({**written, "sink": {**written["sink"], **change}}))
            code, result, errors = job.cli("run")
            assert code != 0
            assert message in f"{result} {errors}"
