"""A task flow at size, on real servers: Avro by a schema registry, converters, checks, a fork to Parquet by hour and
Avro by day, bad records, a schema that changes while it is read; killed, finished, audited, mended and reprocessed.

What is published is counted by other means than the product's: the files are read by pyarrow and fastavro.
"""

from __future__ import annotations

import contextlib
import io
import random
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from distcommit.app.demo.kill import CommitWatcher
from distcommit.app.job import Job
from distcommit.model.ports import FileSystem
from tests.cluster.servers import cluster_job, servers
from tests.cluster.timing import Say, timing
from tests.jobs.kafka_job import FIRST_DAY_MS, KafkaJob
from tests.servers.registry import RegistryServer

_END_S = 1800.0
_HOUR_MS = 3_600_000
_V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cents", "type": "long"},
        {"name": "country", "type": ["null", "string"]},
    ],
}
_V2: dict[str, Any] = {
    **_V1,
    "fields": [*_V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
_BRANCHES = ("hourly", "daily")
Key = tuple[str, int]


class FlowResult(msgspec.Struct):
    """What was seen. Records are counted by (topic, id); `duplicates` and `missing` over both branches and errors.

    `errors`: live ones in the end; `reprocessed`: those that were published after the fix; `published_by_branch`: in
    the end.
    """

    topics: int
    records_produced: int = 0
    published_by_branch: dict[str, int] = {}
    errors: int = 0
    duplicates: int = 0
    missing: int = 0
    kills: int = 0
    reprocessed: int = 0
    exact: bool = False
    seconds: dict[str, float] = {}
    problems: list[str] = []


class _Topics:
    """What is produced, and what is to become of it."""

    def __init__(self, job: KafkaJob, registry: str) -> None:
        self.job, self._client = job, SchemaRegistryClient({"url": registry})
        self._chance = random.Random(1)
        self._ids = {}
        for name, schema in (("v1", _V1), ("v2", _V2)):
            text = msgspec.json.encode(schema).decode()
            for topic in job.topics:
                self._ids[topic, name] = self._client.register_schema(f"{topic}-value", Schema(text, "AVRO"))
        self._parsed = {"v1": fastavro.parse_schema(_V1), "v2": fastavro.parse_schema(_V2)}
        self.good: set[Key] = set()
        self.negative: set[Key] = set()
        self.undecodable: Counter[str] = Counter()
        self._number = 0

    def produce(self, each: int, versions: tuple[str, ...]) -> None:
        """Sends so many records to each topic, one in fifty bad in one of two ways."""
        producer = Producer({"bootstrap.servers": self.job.broker.bootstrap_servers, "linger.ms": 20})
        for topic in self.job.topics:
            for place in range(each):
                self._number += 1
                version, kind = versions[place * len(versions) // each], self._chance.randrange(100)
                at_ms = FIRST_DAY_MS + self._number % 30 * _HOUR_MS
                cents = -5 if kind == 0 else self._number % 10_000
                record = {"id": self._number, "at": datetime.fromtimestamp(at_ms / 1000, UTC), "cents": cents}
                record |= {"country": self._chance.choice(["be", "nl", None]), "note": "n"}
                datum = io.BytesIO()
                fastavro.schemaless_writer(datum, self._parsed[version], record)
                value = struct.pack(">bI", 0, self._ids[topic, version]) + datum.getvalue()
                if kind == 1:
                    value = value[:-1]  # cut off
                    self.undecodable[topic] += 1
                else:
                    (self.negative if kind == 0 else self.good).add((topic, self._number))
                while True:
                    try:
                        producer.produce(topic, value, partition=0, timestamp=at_ms)
                        break
                    except BufferError:
                        producer.poll(0.1)
                self.job.produced += 1
            producer.poll(0)
        if left := producer.flush(120):
            raise TimeoutError(f"{left} records are not acknowledged")


def flow_sections(registry: str, least_cents: int) -> dict[str, Any]:
    """The job's sections; amounts below `least_cents` are rejected."""
    return {
        "sink": None,
        "on_rejected": "divert",
        "converters": [
            {"type": "avro", "registry": {"url": registry}},
            {"type": "sql", "columns": {"euros": "cents / 100.0", "country": "coalesce(country, '??')"}},
        ],
        "row_checkers": [
            {"type": "not_null", "columns": ["id"]},
            {"type": "range", "column": "cents", "min": least_cents},
        ],
        "fork": {
            "type": "all",
            "branches": {
                "hourly": {
                    "sink": {"partition_by": {"column": "at", "granularity": "hour"}},
                    "task_checkers": [{"type": "fraction_rejected", "max": 0.5}],
                },
                "daily": {
                    "sink": {
                        "format": "avro",
                        "compression": "gzip",
                        "partition_by": {"column": "at", "granularity": "day"},
                    },
                    "task_checkers": [{"type": "unique", "columns": ["id"]}],
                },
            },
        },
    }


def run_flow(topics: int, records: int, folder: Path, say: Say, reprocessed_topics: int = 5) -> FlowResult:
    """Runs it.

    Args:
        topics: how many.
        records: of all topics together.
        reprocessed_topics: of how many of them errors are reprocessed, a run each.
        folder: takes the job file and what the runs print.
        say: told what happens, a line each.

    Raises:
        ServerUnavailableError: if a server can't be had on this machine.
    """
    result = FlowResult(topics)

    timed = partial(timing, result.seconds, say)
    with contextlib.ExitStack() as stack:
        with timed("servers started"):
            at = stack.enter_context(servers(broker_heap_mb=1024))
            registry = stack.enter_context(RegistryServer()).url
        with timed("topics made"):
            names = {f"flow.topic-{number:05d}": 1 for number in range(topics)}
            source = {"topics": [], "topic_patterns": [r"flow\..*"]}
            sections = {**flow_sections(registry, 0), "source": source, "commit": {"buckets": 16}}
            job = cluster_job(at, folder, names, **sections)
            sent = _Topics(job, registry)
        each = max(4, records // topics // 2)
        with timed("records produced"):
            sent.produce(each, ("v1", "v2"))  # the schema changes in the midst of what one work unit reads
        for place in range(2):
            with timed(f"run {place + 1}, killed"):
                result.kills += _killed(job)
            if not place:
                sent.produce(each, ("v2", "v1", "v2"))
        with timed("run 3"):
            code, told, errors = job.cli("run", timeout_s=_END_S)
            if code:
                raise RuntimeError(f"run 3 ended with {code}: {told} {errors[-2000:]}")
        with timed("audit, deep"):
            _require_exact(result, job, sent, set())
        with timed("reprocess after the fix"):
            job.write(**flow_sections(registry, -100))
            again = _reprocess(job, sent, reprocessed_topics)
            result.reprocessed = len(again)
        with timed("audit, deep, again"):
            _require_exact(result, job, sent, again)
    result.records_produced = job.produced
    result.exact = not (result.duplicates or result.missing or result.problems)
    return result


def _killed(job: KafkaJob) -> int:
    """One run, killed in the middle of a commit."""
    watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
    with job.start() as run:
        while not run.has_ended and not watcher.pending():
            run.wait(0.05)
        if run.has_ended:
            raise RuntimeError(f"the run ended before it could be killed: {run.stderr.read_text()[-3000:]}")
        run.kill()
    return 1


def _reprocess(job: KafkaJob, sent: _Topics, topics: int) -> set[Key]:
    """Feeds the errors of so many topics through the mended flow; what is published by that."""
    chosen = sorted({topic for topic, _ in sent.negative})[:topics]
    for topic in chosen:
        code, told, errors = job.cli("reprocess", topic)
        if code:
            raise RuntimeError(f"reprocess {topic} ended with {code}: {told} {errors[-2000:]}")
    return {key for key in sent.negative if key[0] in chosen}


def _require_exact(result: FlowResult, job: KafkaJob, sent: _Topics, again: set[Key]) -> None:
    """Holds the product's audit and what the files hold against what was produced, and what was reprocessed of it."""
    audit = job.audit(deep=True)
    audit.partitions = []
    if not audit.exact:
        result.problems.append(f"{'after' if again else 'before'} reprocessing: {audit}"[:2000])
    expected = sent.good | again
    rejected = sum(sent.undecodable.values()) + len(sent.negative - again)
    store = Job.from_file(job.path).open_store(create=False)
    found = _published(store.fs, store.roots.output)
    for branch in _BRANCHES:
        seen = found[branch]
        result.published_by_branch[branch] = seen.total()
        result.duplicates += sum(count - 1 for count in seen.values())
        result.missing += len(expected - seen.keys())
        if seen.keys() - expected:
            result.problems.append(f"{branch}: {len(seen.keys() - expected)} records that were never to be there")
    result.errors = audit.rejected // len(_BRANCHES)  # all were turned away before the fork: they count in each branch
    if result.errors != rejected:
        result.problems.append(f"{result.errors} records among the errors, expected {rejected}")


def _published(fs: FileSystem, output: str) -> dict[str, Counter[Key]]:
    """(topic, id) of each record in the files of each branch."""
    found: dict[str, Counter[Key]] = {branch: Counter() for branch in _BRANCHES}
    for entry in fs.list_folder(output):
        if not entry.is_folder or entry.name.startswith((".", "_")):
            continue
        for branch in _BRANCHES:
            for path in _files(fs, f"{output}/{entry.name}/{branch}"):
                found[branch].update((entry.name, number) for number in _ids(fs.read(path), path))
    return found


def _files(fs: FileSystem, folder: str) -> Iterator[str]:
    for entry in fs.list_folder(folder):
        path = f"{folder}/{entry.name}"
        yield from _files(fs, path) if entry.is_folder else [path]


def _ids(data: bytes, path: str) -> list[int]:
    if path.endswith(".parquet"):
        ids: list[int] = pq.read_table(pa.BufferReader(data), columns=["id"])["id"].to_pylist()
        return ids
    return [record["id"] for record in fastavro.reader(io.BytesIO(data)) if isinstance(record, dict)]
