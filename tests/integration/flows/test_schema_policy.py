"""Schemas that change while topics are read, from a real registry or from a converter.

Compatible changes are published; others divert their records or stop their dataset. Published schemas are recorded
with the sequence.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.sources.kafka.batch_schema import BATCH_SCHEMA
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.servers.registered_records import avro_records
from tests.servers.registry import RegistryServer


def lines(*fields: dict[str, Any]) -> dict[str, Any]:
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, *fields]}
    return {"name": "lines", "type": {"type": "array", "items": line}, "default": []}


FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, lines()]}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, NOTE, lines({"name": "count", "type": "int", "default": 1})],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "id", "type": "string"}]}


def section(server: RegistryServer, **policy: Any) -> dict[str, Any]:
    return {"type": "avro", "registry": {"url": server.url}, **policy}


def send(job: KafkaJob, topic: str, records: Iterable[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for record in records:
        producer.produce(topic, record, partition=partition)
        job.produced += 1
    assert producer.flush(30) == 0


def schema_ids(job: KafkaJob) -> dict[str, list[int]]:
    code, status, errors = job.cli("status")
    assert code in (0, 1), errors[-3000:]
    return {row["dataset"]: row["schemas"].get("avro", []) for row in status["datasets"]}


def id_of(record: bytes) -> int:
    return int.from_bytes(record[1:5], "big")


def united(files: list[str]) -> pa.Table:
    """Unite the tables by the schemas that pyarrow reads from them."""
    return ds.dataset(
        files, schema=pa.unify_schemas(map(pq.read_schema, files), promote_options="permissive")
    ).to_table()


def counted(orders: pa.Table) -> list[int]:
    return sorted(line["count"] or 0 for order in orders["lines"].to_pylist() for line in order)


@pytest.mark.slow
def test_each_dataset_follows_its_policy_and_its_published_schema(
    tmp_path: Path, registry_server: RegistryServer
) -> None:
    run = uuid.uuid4().hex[:8]
    evolves, diverts, stops = (f"{name}-{run}" for name in ("evolves", "diverts", "stops"))
    strict = [{"match": "stops-*", "evolution": "fail"}]
    with kafka_job(
        tmp_path,
        dict.fromkeys((evolves, diverts, stops), 1),
        converters=[section(registry_server, datasets=strict)],
        on_rejected="divert",
        sink={"partition_by": None},
    ) as job:
        old = avro_records(
            registry_server.url, f"first-{run}", FIRST, [{"id": n, "lines": [{"sku": "a"}]} for n in range(5)]
        )
        new = avro_records(
            registry_server.url,
            f"wider-{run}",
            WIDER,
            [{"id": 2**40 + n, "note": "x", "lines": [{"sku": "b", "count": 2}]} for n in range(4)],
        )
        other = avro_records(registry_server.url, f"other-{run}", OTHER, [{"id": "a"}, {"id": "b"}])
        one, two, three = id_of(old[0]), id_of(new[0]), id_of(other[0])
        for topic in (evolves, diverts, stops):
            send(job, topic, old[:2])
        job.run()
        assert schema_ids(job) == {evolves: [one], diverts: [one], stops: [one]}

        send(job, evolves, [old[2], *new[:2], old[3], *new[2:]])
        send(job, diverts, [old[2], other[0], old[3], other[1]])
        send(job, stops, [old[2], new[0]])
        killed_in_commit(job.path, job.start)
        code, result, errors = job.cli("run")
        assert code != 0, errors[-3000:]
        reasons = {reason["subject"]: reason["text"] for reason in result["reasons"]["entries"]}
        assert list(reasons) == [stops]
        assert "evolution is fail" in reasons[stops]
        assert f"expected schema id {one}; found schema id {two}" in reasons[stops]
        assert schema_ids(job) == {evolves: [one, two], diverts: [one], stops: [one]}
        audit = job.audit()
        assert (audit.exact, audit.rejected) == (True, 2)
        assert audit.records + audit.rejected == job.produced - 2, "one dataset published nothing"

        files = sorted(map(str, (tmp_path / "output" / evolves).glob("*.parquet")))
        kinds = [str(pq.read_schema(path).field("id").type) for path in files]
        assert sorted(kinds) == ["int32", "int32", "int64"], "another schema is another file"
        assert sorted(united(files)["id"].to_pylist()) == [
            0,
            1,
            2,
            3,
            *range(2**40, 2**40 + 4),
        ]
        read = duckdb.read_parquet(files, union_by_name=True).to_arrow_table()
        assert (read.num_rows, read["note"].null_count, max(read["id"].to_pylist())) == (8, 4, 2**40 + 3)
        assert counted(read) == counted(united(files)) == [0] * 4 + [2] * 4, "a plain field that is new within others"
        rejected = ds.dataset(str(tmp_path / "output" / "_rejected" / diverts)).to_table()
        assert set(rejected["error_reason"].to_pylist()) == {
            f"schema id {three} is not compatible with earlier records: id is string here, and int32 before"
        }
        code, log, _ = job.cli("store log", "--dataset", evolves)
        assert any(f"avro of schemas {one}; {two}" in line["summary"] for line in log["lines"]), log

        # An operator admits both.
        job.write(converters=[section(registry_server, on_incompatible="accept")])
        job.run()
        code, result, errors = job.cli("dataset reprocess", diverts)
        assert (code, result["totals"]["records_published"]) == (0, 2), errors[-3000:]
        assert schema_ids(job) == {evolves: [one, two], diverts: [one, three], stops: [one, two]}
        job.write(converters=[section(registry_server)])
        send(job, diverts, [old[4], other[0]])
        job.run()
        assert (job.audit().rejected, job.audit().records) == (0, job.produced)
        job.assert_exact()


@pytest.mark.slow
def test_schemas_of_concurrent_work_units_are_compared(tmp_path: Path, registry_server: RegistryServer) -> None:
    run = uuid.uuid4().hex[:8]
    with kafka_job(
        tmp_path,
        {"meets": 2},
        source={"records_per_work_unit": 5},
        converters=[section(registry_server)],
        on_rejected="divert",
        sink={"partition_by": None},
    ) as job:
        records = [
            avro_records(registry_server.url, f"{name}-{run}", schema, [{"id": key} for key in keys])
            for name, schema, keys in (("first", FIRST, range(5)), ("other", OTHER, "abcde"))
        ]
        for partition, of_it in enumerate(records):
            send(job, "meets", of_it, partition)
        job.run()
        (first,) = schema_ids(job)["meets"]
        assert first in {id_of(of_it[0]) for of_it in records}, "whichever was first"
        audit = job.audit()
        assert (audit.exact, audit.rejected, audit.records) == (True, 5, 5)
        kinds = {str(pq.read_schema(path).field("id").type) for path in (tmp_path / "output" / "meets").glob("*")}
        assert len(kinds) == 1, "readers find one table"
        job.write(converters=[section(registry_server, on_incompatible="accept")])
        code, result, errors = job.cli("dataset reprocess", "meets")
        assert (code, result["totals"]["records_published"]) == (0, 5), errors[-3000:]
        assert set(schema_ids(job)["meets"]) == {id_of(of_it[0]) for of_it in records}
        job.assert_exact()


SHAPING = {"type": "python", "class": "tests.integration.parts.shaping_converter:Shaping"}
POLICIES = [
    {"match": "fixed_settings", "evolution": "pin"},
    {"match": "stops", "evolution": "fail"},
    {"match": "fails", "on_incompatible": "fail"},
    {"match": "accepts", "on_incompatible": "accept"},
]
SCHEMA = {"type": "schema", "datasets": POLICIES}


def kinds_of(folder: Path) -> set[tuple[str, ...]]:
    """Return name and type of the columns of a topic's files that are not Kafka's."""
    schemas = [pq.read_schema(path) for path in folder.rglob("*.parquet")]
    return {tuple(f"{f.name} {f.type}" for f in schema if f.name not in BATCH_SCHEMA.names) for schema in schemas}


@pytest.mark.slow
def test_converted_columns_follow_each_policy_in_spite_of_kills(tmp_path: Path, spark: SparkSession) -> None:
    names = ("evolves", "diverts", "fixed_settings", "stops", "fails", "accepts")
    many = [f"more-{number}" for number in range(30)]  # so that the commit takes long enough
    with kafka_job(
        tmp_path,
        dict.fromkeys([*names, *many], 1),
        converters=[SHAPING, SCHEMA],
        on_rejected="divert",
        commit={"min_interval_ms": 60_000},
        sink={"partition_by": None},
    ) as job:
        for topic in names:
            send(job, topic, shaped({"id": 1, "name": "x"}, {"id": 2, "name": "y"}))
        assert Job.from_file(job.path, session=spark).run().succeeded
        for topic in ("evolves", "fixed_settings", "stops"):
            send(job, topic, shaped({"id": 3, "new": True}, {"id": 4, "name": "z"}))
        for topic in ("diverts", "fails", "accepts"):
            send(job, topic, shaped({"id": "5", "name": "x"}, {"id": 6, "name": "z"}))
        for topic in many:
            send(job, topic, shaped({"id": 1}))
        assert killed_in_commit(job.path, job.start), "no run was killed in the middle of its commit"
        reasons = {
            reason.subject: reason.text for reason in Job.from_file(job.path, session=spark).run().reasons.entries
        }
        assert set(reasons) == {"stops", "fails"}
        assert "evolution is fail" in reasons["stops"]
        assert "found new is new; name is missing" in reasons["stops"]
        assert "on_incompatible is fail" in reasons["fails"]
        audit = job.audit()
        assert (audit.exact, audit.rejected) == (True, 1), audit
        assert audit.records + audit.rejected == job.produced - 4, "two datasets published nothing"
        first, text = ("id int64", "name string"), ("id string", "name string")
        assert {name: kinds_of(tmp_path / "output" / name) for name in names} == {
            "evolves": {first, ("id int64", "new bool")},
            "diverts": {first},
            "fixed_settings": {first},
            "stops": {first},
            "fails": {first},
            "accepts": {first, text},
        }
        versions = {row.dataset: len(row.schemas["schema"]) for row in Job.from_file(job.path).status().datasets}
        assert {name: versions[name] for name in names} == {
            "evolves": 2,
            "diverts": 1,
            "fixed_settings": 1,
            "stops": 1,
            "fails": 1,
            "accepts": 3,  # the first one was admitted again, after the other
        }

        # An operator admits the others.
        job.write(converters=[SHAPING, {"type": "schema", "on_incompatible": "accept"}])
        assert Job.from_file(job.path, session=spark).run().succeeded
        assert Job.from_file(job.path, session=spark).reprocess("diverts").succeeded
        assert kinds_of(tmp_path / "output" / "diverts") == {first, text}
        job.assert_exact()


def shaped(*records: dict[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]
