"""A task flow at size on real servers, killed, finished, audited, repaired and reprocessed.

It reads Avro by a schema registry and has converters, checks, and a fork to Parquet by hour and Avro by day. Some
records are bad, and the schema changes during reading. pyarrow and fastavro count the published records independently
of the product.
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
import yaml
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from distcommit.app.demo.killed_run import CommitWatcher
from distcommit.app.jobs.job import Job
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_tombstone
from distcommit.stores.folders.tombstones import read_tombstone
from tests.cluster.servers import cluster_job, servers
from tests.cluster.timing import Say, timing
from tests.jobs.kafka_job import FIRST_DAY_MS, PACKAGE_ROOT, KafkaJob
from tests.servers.registry import RegistryServer

_END_S = 1800.0
_HOUR_MS = 3_600_000
_CONF = PACKAGE_ROOT / "conf" / "jobs" / "kafka-avro-fork.yaml"
_V1: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": "long"},
        {"name": "page", "type": "string"},
        {"name": "email", "type": ["null", "string"]},
    ],
}
_V2: dict[str, Any] = {
    **_V1,
    "fields": [*_V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
_LAKE, _ARCHIVE = "lake", "archive"
_BRANCHES = (_LAKE, _ARCHIVE)
_TOO_LITTLE, _TOO_MUCH, _EMAIL = -5, 20_000, "u@example.org"
Key = tuple[str, int]


class FlowResult(msgspec.Struct):
    """Result of a flow; records are counted by (topic, id).

    `duplicates` and `missing`: over both branches. `errors`: live ones in the end. `errors_by_branch`: the same by
    branch; records that were rejected before the fork have an empty name. `turned_away_by_branch`: the same before the
    fix. `reprocessed`: those that were published after it. `published_by_branch`: in the end.
    """

    topics: int
    records_produced: int = 0
    published_by_branch: dict[str, int] = {}
    errors: int = 0
    duplicates: int = 0
    missing: int = 0
    kills: int = 0
    reprocessed: int = 0
    errors_by_branch: dict[str, int] = {}
    turned_away_by_branch: dict[str, int] = {}
    exact: bool = False
    seconds: dict[str, float] = {}
    problems: list[str] = []


class _Topics:
    """The produced records and their expected outcome."""

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
        self.of_no_branch: set[Key] = set()
        self.not_for_the_lake: set[Key] = set()
        self.undecodable = 0
        self._number = 0

    def produce(self, per_topic: int, versions: tuple[str, ...]) -> None:
        """Send that many records to each topic, one in fifty bad, in one of four ways."""
        producer = Producer({"bootstrap.servers": self.job.broker.bootstrap_servers, "linger.ms": 20})
        for topic in self.job.topics:
            for place in range(per_topic):
                self._number += 1
                version, kind = versions[place * len(versions) // per_topic], self._chance.randrange(200)
                at_ms = FIRST_DAY_MS + self._number % 30 * _HOUR_MS
                record = {
                    "id": self._number,
                    "user": None if kind == 2 else "u",
                    "time": datetime.fromtimestamp(at_ms / 1000, UTC),
                    "price": {0: _TOO_LITTLE, 1: _TOO_MUCH}.get(kind, self._number % 10_000),
                    "page": "/",
                    "email": self._chance.choice([None, _EMAIL]),
                    "note": "n",
                }
                datum = io.BytesIO()
                fastavro.schemaless_writer(datum, self._parsed[version], record)
                value = struct.pack(">bI", 0, self._ids[topic, version]) + datum.getvalue()
                if kind == 3:
                    value = value[:-1]  # truncated
                    self.undecodable += 1
                else:
                    kinds = {0: self.of_no_branch, 1: self.not_for_the_lake, 2: self.of_no_branch}
                    kinds.get(kind, self.good).add((topic, self._number))
                while True:
                    try:
                        producer.produce(topic, value, partition=0, timestamp=at_ms)
                        break
                    except BufferError:
                        producer.poll(0.1)
                self.job.produced += 1
            producer.poll(0)
        if unacknowledged := producer.flush(120):
            raise TimeoutError(f"{unacknowledged} records are not acknowledged")


def flow_sections(registry: str) -> dict[str, Any]:
    """Return the flow sections of the documentation's job file, with another registry."""
    tree: dict[str, Any] = yaml.safe_load(_CONF.read_text(encoding="utf-8"))
    tree["converters"][0]["registry"]["url"] = registry
    flow = {name: tree[name] for name in ("converters", "on_rejected", "row_checkers", "fork")}
    return {**flow, "sink": None, "source": {"topics": [], "topic_patterns": tree["source"]["topic_patterns"]}}


def repaired(sections: dict[str, Any]) -> dict[str, Any]:
    """Return the flow sections with a schema that admits everything that can be decoded."""
    not_null, price, page = sections["row_checkers"]
    lake, archive = (sections["fork"]["branches"][name] for name in _BRANCHES)
    (most,) = lake["row_checkers"]
    branches = {_LAKE: {**lake, "row_checkers": [{**most, "max": _TOO_MUCH}]}, _ARCHIVE: archive}
    checkers = [{**not_null, "columns": ["time"]}, {**price, "min": _TOO_LITTLE}, page]
    return {**sections, "row_checkers": checkers, "fork": {**sections["fork"], "branches": branches}}


def run_flow(topics: int, records: int, folder: Path, say: Say) -> FlowResult:
    """Run the flow.

    Args:
        topics: their number.
        records: of all topics together.
        folder: for the job file and the runs' output.
        say: receives each event, a line each.

    Raises:
        ServerUnavailableError: if a server is unavailable on this machine.
    """
    result = FlowResult(topics)

    timed = partial(timing, result.seconds, say)
    with contextlib.ExitStack() as stack:
        with timed("servers started"):
            at = stack.enter_context(servers(broker_heap_mb=1024))
            registry = stack.enter_context(RegistryServer()).url
        with timed("topics made"):
            names = {f"clicks.topic-{number:05d}": 1 for number in range(topics)}
            sections = flow_sections(registry)
            job = cluster_job(at, folder, names, **sections, commit={"buckets": 16})
            sent = _Topics(job, registry)
        per_topic = max(4, records // topics // 2)
        with timed("records produced"):
            sent.produce(per_topic, ("v1", "v2"))  # the schema changes in the middle of a work unit's records
        for place in range(2):
            with timed(f"run {place + 1}, killed"):
                result.kills += _killed(job)
            if not place:
                sent.produce(per_topic, ("v2", "v1", "v2"))
        with timed("run 3"):
            _done(job, "run")
        with timed("audit, deep"):
            before = _require_exact(result, job, sent, is_mended=False)
        with timed("all reprocessed after the fix"):
            job.write(**repaired(sections))
            _done(job, "dataset reprocess", "--all")
        with timed("audit, deep, again"):
            result.reprocessed = before - _require_exact(result, job, sent, is_mended=True)
    result.records_produced = job.produced
    result.exact = not (result.duplicates or result.missing or result.problems)
    return result


def _killed(job: KafkaJob) -> int:
    """Kill one run in the middle of a commit, and describe it."""
    watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
    with job.start() as run:
        while not run.has_ended and not watcher.pending():
            run.wait(0.05)
        if run.has_ended:
            raise RuntimeError(f"the run ended before it could be killed: {run.stderr.read_text()[-3000:]}")
        run.kill()
    return 1


def _done(job: KafkaJob, *command: str) -> None:
    code, result, errors = job.cli(*command, timeout_s=_END_S)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {result} {errors[-2000:]}")


def _require_exact(result: FlowResult, job: KafkaJob, sent: _Topics, *, is_mended: bool) -> int:
    """Compare the audit and the files with the produced records; return the number of live errors."""
    audit = job.audit(deep=True)
    audit.partitions = []
    when = "after" if is_mended else "before"
    if not audit.exact:
        result.problems.append(f"{when} reprocessing: {audit}"[:2000])
    of_all = sent.good | (sent.of_no_branch if is_mended else set())
    in_lake = of_all | (sent.not_for_the_lake if is_mended else set())
    store = Job.from_file(job.path).open_store(create=False)
    published = _published(store.fs, store.roots.output)
    for branch, expected in ((_LAKE, in_lake), (_ARCHIVE, of_all | sent.not_for_the_lake)):
        counts = published[branch]
        result.published_by_branch[branch] = counts.total()
        result.duplicates += sum(count - 1 for count in counts.values())
        result.missing += len(expected - counts.keys())
        if more := counts.keys() - expected:
            result.problems.append(f"{when} reprocessing {len(more)} records of {branch} that were never to be there")
    errors = _live_errors(store.fs, store.roots.output)
    result.errors, result.errors_by_branch = errors.total(), dict(Counter(branch for branch, _, _ in errors.elements()))
    if not is_mended:
        result.turned_away_by_branch = result.errors_by_branch
    result.duplicates += sum(count - 1 for count in errors.values())
    if audit.rejected != (counted := sum(len(_BRANCHES) if not branch else 1 for branch, _, _ in errors)):
        result.problems.append(f"{when} reprocessing the audit finds {audit.rejected} errors, and there are {counted}")
    before_the_fork, of_lake = len(sent.of_no_branch), len(sent.not_for_the_lake)
    requested = {"": sent.undecodable} if is_mended else {"": sent.undecodable + before_the_fork, _LAKE: of_lake}
    if result.errors_by_branch != {branch: count for branch, count in requested.items() if count}:
        result.problems.append(f"{when} reprocessing the errors are {result.errors_by_branch}, expected {requested}")
    return result.errors


def _published(fs: FileSystem, output: str) -> dict[str, Counter[Key]]:
    """Return (topic, id) of each record in the files of each branch."""
    counts: dict[str, Counter[Key]] = {branch: Counter() for branch in _BRANCHES}
    for entry in fs.list_folder(output):
        if not entry.is_folder or entry.name.startswith((".", "_")):
            continue
        for branch in _BRANCHES:
            for path in _files(fs, f"{output}/{entry.name}/{branch}"):
                counts[branch].update((entry.name, number) for number in _ids(fs.read(path), path))
    return counts


def _live_errors(fs: FileSystem, output: str) -> Counter[tuple[str, str, int]]:
    """Return (branch, topic, offset) of each record in the error files that no tombstone names."""
    rejected = f"{output}/{REJECTED_FOLDER}"
    paths = list(_files(fs, rejected))
    stones = [read_tombstone(fs, path) for path in paths if is_tombstone(path)]
    retired = {f"{output}/{file.path}" for stone in stones for file in stone.files}
    errors: Counter[tuple[str, str, int]] = Counter()
    for path in paths:
        if path in retired or is_tombstone(path):
            continue
        rows = pq.read_table(pa.BufferReader(fs.read(path)), columns=["error_branch", "kafka_offset"]).to_pylist()
        topic = path.removeprefix(f"{rejected}/").partition("/")[0]  # a branch's errors are in a folder of its name
        errors.update((row["error_branch"], topic, row["kafka_offset"]) for row in rows)
    return errors


def _files(fs: FileSystem, folder: str) -> Iterator[str]:
    for entry in fs.list_folder(folder):
        path = f"{folder}/{entry.name}"
        yield from _files(fs, path) if entry.is_folder else [path]


def _ids(data: bytes, path: str) -> list[int]:
    if path.endswith(".parquet"):
        ids: list[int] = pq.read_table(pa.BufferReader(data), columns=["id"])["id"].to_pylist()
        return ids
    return [record["id"] for record in fastavro.reader(io.BytesIO(data)) if isinstance(record, dict)]
