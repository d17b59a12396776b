"""Hostile schemas, records, files and servers in whole jobs.

Nothing hostile is executed, each case fails or is rejected alone with its bound in the reason, and all other
datasets of the job are published in the same run.
"""

from __future__ import annotations

import http.server
import io
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset as ds
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.constructs.registry.registry_converter import MAX_UNKNOWN
from distcommit.engine.driver.run import RunResult
from distcommit.schemas.schema_size_limits import MAX_COLUMNS, MAX_NESTING
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.servers.hostile_registry import HostileRegistry, hostile_registry
from tests.servers.registered_records import framed
from tests.unit.avro.test_avro_containers import file_of
from tests.unit.constructs.registry.protobuf.test_hostile_protobuf import POLYGLOT, doubling
from tests.unit.constructs.registry.test_hostile_schemas import doubled

RECORDS = 50
MAX_RUN_S = 60
"""Bound on the processor time of all Python workers in one run."""
MAX_WORKER_BYTES = 1 << 29
"""Bound on one Python worker, which has less than 250 MB with all libraries loaded."""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}
JSON_ORDER = {"type": "object", "properties": {"n": {"type": "integer"}}}
PROTO_ORDER = 'syntax = "proto3"; message Order { int64 n = 1; }'
FORMATS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}


def avro_value(number: int) -> bytes:
    """Return an Avro Order with numbers below 64."""
    return bytes([number << 1])


def protobuf_value(number: int) -> bytes:
    return b"\x00" + (b"\x08" + bytes([number]) if number else b"")


def json_value(number: int) -> bytes:
    return b'{"n": %d}' % number


def exploding_json() -> str:
    """Return about 1.5 kB of JSON that would become 2^20 columns, nested less deeply than the bound."""
    definitions: dict[str, Any] = {"L0": {"type": "integer"}}
    for level in range(1, 21):
        below = {"$ref": f"#/definitions/L{level - 1}"}
        definitions[f"L{level}"] = {"type": "object", "properties": {"a": below, "b": below}}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/definitions/L20"}}, "definitions": definitions}
    return json.dumps(schema)


def nested_avro(levels: int) -> str:
    """Return a record of nested arrays."""
    arrays = '{"type": "array", "items": ' * levels + '"long"' + "}" * levels
    return f'{{"type": "record", "name": "Deep", "fields": [{{"name": "x", "type": {arrays}}}]}}'


def nested_message(levels: int) -> bytes:
    """Return a message that contains itself to that depth."""
    message = b""
    for _ in range(levels):
        size, length = len(message), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        message = b"\x0a" + length + bytes([size]) + message
    return message


def python_workers() -> Iterator[Path]:
    """Return the /proc folders of Spark's Python workers, which descend from this process."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                daemons.add(int(folder.name))
        except OSError:
            continue
    return (Path(f"/proc/{pid}") for pid in daemons if parents[pid] in daemons and is_below(os.getpid(), pid, parents))


def is_below(above: int, pid: int, parents: Mapping[int, int]) -> bool:
    while pid not in (0, above):
        pid = parents.get(pid, 0)
    return pid == above


@contextmanager
def bounded_workers() -> Iterator[None]:
    """Assert bounds on the memory of each Python worker and on the processor time of all of them.

    Wall-clock time would depend on the other load of the machine.
    """
    for worker in python_workers():
        (worker / "clear_refs").write_text("5")  # reset the peak
    before_s = seconds_of_workers()
    yield
    after_s = seconds_of_workers()
    assert sum(after_s.values()) - sum(before_s.values()) < MAX_RUN_S, (before_s, after_s)
    peaks = [
        int(line.split()[1]) << 10
        for worker in python_workers()
        for line in (worker / "status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    assert peaks, "no Python worker was found"
    assert max(peaks) < MAX_WORKER_BYTES, f"peak bytes of workers: {peaks}"


def seconds_of_workers() -> dict[str, float]:
    """Return the processor time of each Python worker, including children that have ended."""
    fields = {worker.name: (worker / "stat").read_text().rpartition(")")[2].split() for worker in python_workers()}
    return {pid: sum(map(int, item[11:15])) / os.sysconf("SC_CLK_TCK") for pid, item in fields.items()}


def failures(result: RunResult) -> dict[str, str]:
    return {reason.subject: reason.text for reason in result.reasons.entries}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.rglob("*.parquet"))
    return [row for path in paths for row in ds.dataset(str(path)).to_table().to_pylist()]


def by_format(url: str) -> dict[str, Any]:
    """Return a fork that routes records to the branch of the format that their keys name."""
    registry = {"url": url, "client": {"max.retries": 0, "timeout": 10}}
    return {
        "type": "first_match",
        "when": {name: {"column": "key", "op": "==", "value": name} for name in FORMATS},
        "branches": {
            name: {"converters": [{"type": name, "registry": registry}], "sink": {"partition_by": None}}
            for name in FORMATS
        },
    }


@contextmanager
def attacked(folder: Path, registry: HostileRegistry, proof: Path) -> Iterator[tuple[KafkaJob, dict[str, str]]]:
    """Return a job with a healthy and several hostile topics of each format, and the bound that each hostile topic
    must report."""
    polyglot = ("grpc_tools/__init__.py", POLYGLOT.format(path=str(proof)))
    main = 'syntax = "proto3"; import "grpc_tools/__init__.py"; message Order { int64 n = 1; }'
    recursive = 'syntax = "proto3"; message M { M m = 1; int32 x = 2; }'
    schemas: dict[str, tuple[str, str, Iterable[bytes]]] = {
        "good-avro": ("avro", json.dumps(ORDER), map(avro_value, range(RECORDS))),
        "good-protobuf": ("protobuf", PROTO_ORDER, map(protobuf_value, range(RECORDS))),
        "good-json": ("json_schema", json.dumps(JSON_ORDER), map(json_value, range(RECORDS))),
        "polyglot": ("protobuf", main, map(protobuf_value, range(RECORDS))),
        "exploding-avro": ("avro", json.dumps(doubled(20)), [b"\x02"] * RECORDS),
        "exploding-protobuf": ("protobuf", doubling(20, 3), [b"\x00"] * RECORDS),
        "exploding-json": ("json_schema", exploding_json(), [b"{}"] * RECORDS),
        "deep-avro": ("avro", nested_avro(MAX_NESTING + 1), [b"\x02"] * RECORDS),
        "bottomless-avro": ("avro", nested_avro(2_000), [b"\x02"] * RECORDS),
        "deep-protobuf": ("protobuf", doubling(MAX_NESTING + 1, 1), [b"\x00"] * RECORDS),
        "deep-message": ("protobuf", recursive, [b"\x00" + nested_message(10_000)] * 10),
        "deep-text": ("json_schema", json.dumps(JSON_ORDER), [b'{"n": 1, "x": ' + b"[" * 100_000] * 10),
        "unknown-ids": ("avro", json.dumps(ORDER), []),
    }
    with kafka_job(folder, dict.fromkeys(schemas, 1), sink=None, on_rejected="divert") as job:
        producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers, "linger.ms": 5})
        for topic, (kind, text, bodies) in schemas.items():
            references = [polyglot] if topic == "polyglot" else []
            schema_id = registry.add(f"{topic}-value", text, FORMATS[kind], references)
            values = [framed(schema_id, body) for body in bodies]
            for value in values or [framed(1_000_000 + number, b"\x02") for number in range(1_000)]:
                producer.produce(topic, value, key=kind.encode(), partition=0)
        assert producer.flush(30) == 0
        job.write(fork=by_format(registry.url))
        columns, levels = f"more than {MAX_COLUMNS} columns", f"more than {MAX_NESTING} levels deep"
        bounds = dict.fromkeys(("exploding-avro", "exploding-protobuf", "exploding-json"), columns)
        bounds |= dict.fromkeys(("deep-avro", "deep-protobuf"), levels)
        bounds |= dict.fromkeys(("bottomless-avro", "deep-text"), "maximum recursion depth exceeded")
        yield (
            job,
            {**bounds, "deep-message": "Exceeded upb_DecodeOptions_MaxDepth", "unknown-ids": f"at most {MAX_UNKNOWN}"},
        )


def test_hostile_topics_fail_alone_and_healthy_topics_of_the_job_are_published(
    tmp_path: Path, spark: SparkSession
) -> None:
    proof = tmp_path / "proof"
    with hostile_registry() as registry, attacked(tmp_path, registry, proof) as (job, bounds):
        with bounded_workers():
            result = Job.from_file(job.path, session=spark).run()
        failed = failures(result)
        audit = job.audit()
    assert not proof.exists(), "text of a schema was executed"
    output = tmp_path / "output"
    healthy = {"good-avro": "avro", "good-protobuf": "protobuf", "good-json": "json_schema", "polyglot": "protobuf"}
    published = {topic: [row["n"] for row in rows_of(output / topic / branch)] for topic, branch in healthy.items()}
    assert published == {topic: [*range(RECORDS)] for topic in healthy}
    reasons = {}
    for topic in bounds:
        rejected = rows_of(output / "_rejected" / topic)
        reasons[topic] = failed.get(topic) or "; ".join(sorted({row["error_reason"] for row in rejected}))
    assert {topic: reasons[topic] for topic, bound in bounds.items() if bound not in reasons[topic]} == {}
    assert [topic for topic in bounds if rows_of(output / topic)] == []
    assert [*failed] == ["unknown-ids"], "the others are rejected, record by record"
    assert sum(path.startswith("/schemas/ids/10") for path in registry.asked) <= 2 * (MAX_UNKNOWN + 1)
    assert audit.exact


def avro_job(folder: Path) -> Path:
    """Write a job of two healthy Avro datasets and two whose files each claim 10^12 records without bytes."""
    for number in range(3):
        for dataset in ("good-a", "good-b"):
            written = io.BytesIO()
            fastavro.writer(written, fastavro.parse_schema(dict(ORDER)), [{"n": n} for n in range(RECORDS)])
            put(folder / "in" / dataset / f"{number}.avro", written.getvalue())
        nulls = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}
        bomb = file_of(nulls, "null", (10**12, b"")).getvalue()
        assert len(bomb) < 200
        put(folder / "in" / "nulls" / f"{number}.avro", bomb)
        put(folder / "in" / "columns" / f"{number}.avro", file_of(doubled(20), "null", (1, b"")).getvalue())
    tree = {
        "job": "files",
        "source": {"type": "files", "paths": [f"{folder}/in/{{dataset}}/*.avro"], "format": "avro"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1_700_000_000,) * 2)


def test_avro_files_that_claim_a_million_million_records_fail_alone(tmp_path: Path, spark: SparkSession) -> None:
    path = avro_job(tmp_path)
    with bounded_workers():
        result = Job.from_file(path, session=spark).run()
    reasons = failures(result)
    assert sorted(reasons) == ["columns", "nulls"]
    assert "claims 1000000000000 records in 0 bytes, and at most" in reasons["nulls"]
    assert f"more than {MAX_COLUMNS} columns" in reasons["columns"]
    for dataset in ("good-a", "good-b"):
        assert sorted(row["n"] for row in rows_of(tmp_path / "output" / dataset)) == sorted([*range(RECORDS)] * 3)
    for dataset in reasons:
        assert not rows_of(tmp_path / "output" / dataset)


@contextmanager
def lists_with_a_slow_one() -> Iterator[str]:
    """Serve the list `good`, and any other list at one byte a second without an end."""
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps([{"n": number} for number in range(RECORDS)]).encode()
            is_good = self.path.partition("?")[0] == "/good"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) if is_good else 1_000_000))
            self.end_headers()
            if is_good:
                self.wfile.write(body)
                return
            with suppress(OSError):
                while not ended.wait(1):
                    self.wfile.write(b" ")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        ended.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


def test_list_that_arrives_a_byte_a_second_fails_alone(tmp_path: Path, spark: SparkSession) -> None:
    with lists_with_a_slow_one() as url:
        source = {
            "type": "rest",
            "url": f"{url}/{{dataset}}",
            "datasets": ["good", "slow"],
            "watermark": {"field": "n", "type": "integer", "since": "since", "lookback": 0},
            "paging": {"type": "none"},
            "response_timeout_s": 2,
        }
        tree = {
            "job": "lists",
            "source": source,
            "converters": [{"type": "json", "fields": {"n": "int64"}, "keep_column": False}],
            "task": {"retry_wait_s": 0},
            "paths": {name: name for name in ("store", "staging", "output")},
            "spark": {"master": "local[2,4]"},
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(tree))
        with bounded_workers():
            result = Job.from_file(path, session=spark).run()
    reasons = failures(result)
    assert list(reasons) == ["slow"]
    assert "source.response_timeout_s: 2 s" in reasons["slow"]
    published = [row["n"] for row in rows_of(tmp_path / "output" / "good")]
    assert published == [*range(RECORDS - 1)], "the newest number waits until there is a newer one"
    assert not rows_of(tmp_path / "output" / "slow")
