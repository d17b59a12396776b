"""Job files with the constructs that other jobs of these tests lack, forked into three branches and killed in
mid-commit.

pyarrow, fastavro and gzip read the published files; plain Python computes the expected records.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.kafka_job import FIRST_DAY_MS, KafkaJob, kafka_job
from tests.servers.registered_records import framed, register
from tests.servers.registry import RegistryServer

SECRET = "sixteen characters"
RECORDS, TRIES = 25, 4
FIRST_MATCH: dict[str, Any] = {
    "type": "first_match",
    "when": {
        "deleted": {"column": "is_deleted", "op": "==", "value": True},
        "large": {"column": "amount", "op": ">=", "value": 50},
    },
    "unmatched": "rest",
}
OWN_FORK = {"type": "python", "class": "tests.integration.parts.custom_fork:ByAmount", "options": {"least": 50}}
PLACE = ["kafka_partition", "kafka_offset"]
TYPED: dict[str, Any] = {
    "sink": None,
    "on_rejected": "divert",
    "converters": [
        {"type": "key", "format": "int"},
        {"type": "tombstones"},
        {
            "type": "json",
            "keep_column": False,
            "fields": {
                "kind": "string",
                "email": "string",
                "amount": "string",
                "place": {"city": "string", "zip": "string"},
            },
        },
        {"type": "flatten", "columns": ["place"]},
        {"type": "rename", "columns": {"place.city": "city", "place.zip": "zip"}},
        {"type": "cast", "columns": {"amount": "decimal(9, 2)"}},
        {
            "type": "provenance",
            "copies": {"at": "kafka_offset"},
            "constants": {"origin": "here"},
            "ingest_time": "came",
        },
    ],
    "row_checkers": [
        {"type": "in_set", "column": "kind", "values": ["a", "b"]},
        {"type": "regex", "column": "email", "pattern": "@"},
    ],
}
BRANCHES: dict[str, Any] = {
    "deleted": {
        "converters": [{"type": "select", "columns": ["key", "is_deleted", *PLACE]}],
        "task_checkers": [{"type": "row_count_of_source"}],
        "sink": {"format": "jsonl", "compression": "gzip"},
    },
    "large": {
        "converters": [{"type": "mask", "columns": ["email"], "keep_last": 4}],
        "task_checkers": [
            {"type": "unique", "columns": PLACE},
            {"type": "schema", "columns": {"amount": "decimal(9, 2)", "city": "string"}},
        ],
        "sink": {"partition_by": {"field": "kind"}},
    },
    "rest": {
        "converters": [{"type": "hash", "columns": ["email"], "key": SECRET}],
        "task_checkers": [{"type": "freshness", "column": "came", "max_age_s": 86_400}],
        "sink": {"format": "orc"},
    },
}
Sent = list[tuple[bytes, bytes | None]]
Found = dict[str, Counter[Any]]


def send(job: KafkaJob, topic: str, records: Sent) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for key, value in records:
        producer.produce(topic, value, key=key, partition=0, timestamp=FIRST_DAY_MS)
    assert producer.flush(30) == 0
    job.produced += len(records)


def killed_in_mid_commit(job: KafkaJob, produce: Callable[[], None]) -> None:
    """Produce and run until a run dies with sealed, unclosed sequences."""
    for _ in range(TRIES):
        produce()
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start() as run:
            while run.wait(0.002) is None and not watcher.pending():
                pass
            assert run.wait(0) in (None, 0), run.stderr.read_text()[-3000:]
            run.kill()
        if watcher.pending():
            return
    pytest.fail("no run was killed in the middle of its commit")


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return all rows of the files there, of any format."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".parquet", ".orc"):
            rows += ds.dataset(str(path), format=path.suffix[1:]).to_table().to_pylist()
        elif path.suffix == ".avro":
            with path.open("rb") as file:
                rows += [cast(dict[str, Any], record) for record in fastavro.reader(file)]
        elif path.suffix == ".gz":
            rows += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return rows


def errors_in(output: Path) -> Found:
    """Return the rejected values by the branch that rejected them."""
    errors: Found = {}
    for row in rows_in(output / "_rejected"):
        errors.setdefault(f"errors/{row['error_branch'] or ''}", Counter())[row["value"]] += 1
    return errors


def require_exact(job: KafkaJob, branches: Sequence[str]) -> None:
    audit = job.audit()
    for branch in branches:
        rows = [row for row in audit.partitions if row.branch == branch]
        assert sum(row.published + row.rejected + row.filtered for row in rows) == job.produced, branch
    audit.partitions = []
    assert audit.exact, audit


def typed_records(chance: random.Random) -> Sent:
    """Return records of all kinds: numeric and other keys, deletions, and records that each construct rejects."""
    records: Sent = []
    for _ in range(RECORDS):
        number = chance.randrange(2**31)
        key = chance.choice([number.to_bytes(4, "big"), number.to_bytes(8, "big")] * 5 + [b"bad"])
        value: dict[str, Any] = {
            "kind": chance.choice(["a", "b", "a", "b", "odd"]),
            "email": chance.choice([f"user{number}@example.org"] * 9 + ["nobody"]),
            "amount": chance.choice([f"{number % 10_000 / 100:.2f}"] * 9 + ["much"]),
            "place": {"city": f"city{number % 7}", "zip": "1"},
        }
        records.append((key, chance.choice([json.dumps(value).encode()] * 8 + [None, b"no JSON"])))
    return records


def typed_expected(sent: Sent) -> Found:
    """Compute the expected output in plain Python."""
    outcome: Found = {name: Counter() for name in (*BRANCHES, "errors/")}
    for key, value in sent:
        if len(key) not in (4, 8):
            outcome["errors/"][value] += 1
            continue
        number = int.from_bytes(key, "big")
        if value is None:
            outcome["deleted"][number] += 1
            continue
        try:
            record = json.loads(value)
            amount = Decimal(record["amount"])
        except (ValueError, ArithmeticError):
            outcome["errors/"][value] += 1
            continue
        email, city = record["email"], record["place"]["city"]
        if record["kind"] == "odd" or "@" not in email:
            outcome["errors/"][value] += 1
        elif amount >= 50:
            outcome["large"][number, amount, "****.org", city] += 1
        else:
            hashed = hmac.new(SECRET.encode(), email.encode(), hashlib.sha256).hexdigest()
            outcome["rest"][number, amount, hashed, city] += 1
    return outcome


def typed_published(output: Path) -> Found:
    content = {**{name: Counter[Any]() for name in (*BRANCHES, "errors/")}, **errors_in(output)}
    for topic in (path for path in output.iterdir() if not path.name.startswith((".", "_"))):
        for row in rows_in(topic / "deleted"):
            assert set(row) == {"key", "is_deleted", *PLACE}
            assert row["is_deleted"]
            content["deleted"][row["key"]] += 1
        for branch in ("large", "rest"):
            for row in rows_in(topic / branch):
                assert (row["at"], row["origin"], row["is_deleted"]) == (row["kafka_offset"], "here", False)
                assert row["came"] is not None
                content[branch][row["key"], row["amount"], row["email"], row["city"]] += 1
    return content


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "fork",
    [
        pytest.param(FIRST_MATCH, id="first match"),
        pytest.param({**FIRST_MATCH, "unmatched": "drop"}, id="unmatched records dropped"),
        pytest.param(OWN_FORK, id="own class"),
    ],
)
def test_typed_checked_and_forked_records_have_one_outcome_in_spite_of_kills(
    fork: dict[str, Any], tmp_path: Path
) -> None:
    chance, drops = random.Random(1), fork.get("unmatched") == "drop"
    branches = {name: branch for name, branch in BRANCHES.items() if not (drops and name == "rest")}
    sections = {**TYPED, "fork": {**fork, "branches": branches}, "commit": {"min_interval_ms": 60_000}}
    with kafka_job(tmp_path, {f"t{n:02d}": 1 for n in range(12)}, **sections) as job:
        sent: Sent = []

        def produce() -> None:
            for topic in job.topics:
                records = typed_records(chance)
                send(job, topic, records)
                sent.extend(records)

        killed_in_mid_commit(job, produce)
        produce()
        job.run()
        expected = typed_expected(sent)
        assert all(expected.values()), "some in each branch, and some errors"
        if drops:
            expected["rest"].clear()
        assert typed_published(tmp_path / "output") == expected
        require_exact(job, [*branches])


MESSAGES = ("message Order { int64 id = 1; }", "message Order { int64 id = 1; string note = 2; }")
SHOP = {"type": "object", "properties": {"shop": {"type": "string"}}, "required": ["shop"]}
WITH_NOTE = {"id": "int64", "note": "string"}
BY_SCHEMA: dict[str, Any] = {
    "type": "by_schema",
    "requires": {"noted": ["note"], "every": ["id"], "strict": ["id"]},
    "branches": {
        "noted": {"task_checkers": [{"type": "schema", "columns": WITH_NOTE}]},
        "every": {"task_checkers": [{"type": "row_count_of_source"}], "sink": {"format": "avro"}},
        "strict": {"row_checkers": [{"type": "schema", "columns": WITH_NOTE, "on_failure": "divert"}]},
    },
}


class Shop:
    """Producer of records with JSON-schema keys and values of one of two Protobuf schemas."""

    def __init__(self, url: str, subject: str) -> None:
        schemas = [f'syntax = "proto3"; {message}' for message in MESSAGES]
        self._values = [register(url, f"{subject}-value", schema, "PROTOBUF") for schema in schemas]
        self._key = register(url, f"{subject}-key", json.dumps(SHOP), "JSON")
        self._sent = 0
        self.expected: Found = {name: Counter() for name in ("noted", "every", "strict", "errors/", "errors/strict")}

    def records(self, chance: random.Random) -> Sent:
        """Return more records; one of ten has a key of another schema or is truncated."""
        sent: Sent = []
        for _ in range(RECORDS):
            self._sent += 1
            has_note, number = chance.random() < 0.5, self._sent
            body = b"\0\x08" + (bytes([number]) if number < 128 else bytes([number % 128 | 128, number // 128]))
            body += b"\x12\x04note" if has_note else b""
            value, key = framed(self._values[has_note], body), framed(self._key, b'{"shop": "s"}')
            wrong = chance.randrange(20)
            if wrong == 0:
                key = framed(self._key, b"{}")
            elif wrong == 1:
                value = framed(self._values[has_note], body + b"\x1a\x05")
            sent.append((key, value))
            if wrong < 2:
                self.expected["errors/"][value] += 1
                continue
            self.expected["every"][number] += 1
            if has_note:
                self.expected["noted"][number] += 1
                self.expected["strict"][number] += 1
            else:
                self.expected["errors/strict"][value] += 1
        return sent


@pytest.mark.long
@pytest.mark.slow
def test_registry_records_forked_by_schema_have_one_outcome_in_spite_of_kills(
    tmp_path: Path, registry_server: RegistryServer
) -> None:
    run, chance = uuid.uuid4().hex[:8], random.Random(2)
    registry = {"registry": {"url": registry_server.url}, "keep_column": False}
    converters = [{"type": "json_schema", "column": "key", **registry}, {"type": "protobuf", **registry}]
    sections = {"converters": converters, "on_rejected": "divert", "fork": BY_SCHEMA, "sink": None}
    topics = {f"shop-{run}-{n:02d}": 1 for n in range(12)}
    shop = Shop(registry_server.url, f"shop-{run}")
    with kafka_job(tmp_path, topics, **sections, commit={"min_interval_ms": 60_000}) as job:

        def produce() -> None:
            for topic in topics:
                send(job, topic, shop.records(chance))

        killed_in_mid_commit(job, produce)
        produce()
        job.run()
        output = tmp_path / "output"
        content = {**{name: Counter[Any]() for name in ("errors/", "errors/strict")}, **errors_in(output)}
        for branch in ("noted", "every", "strict"):
            rows = [row for topic in topics for row in rows_in(output / topic / branch)]
            assert {row["shop"] for row in rows} == {"s"}
            assert all(row["note"] == "note" for row in rows if "note" in row or branch != "every")
            content[branch] = Counter(row["id"] for row in rows)
        assert all(shop.expected.values()), "some in each branch, and some errors of each"
        assert content == shop.expected
        require_exact(job, ["noted", "every", "strict"])
