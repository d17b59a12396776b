"""Sinks' main jobs at size: topics from Kafka to a target by `distcommit run`, killed from outside at random moments,
then run to the end. What is visible is counted at the target, by queries that share no code with the sink.
"""

from __future__ import annotations

import base64
import random
import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import yaml
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from distcommit.app.job import Job
from tests.cluster.timing import Say, timing
from tests.jobs.kafka_job import KafkaJob
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records
from tests.servers.process import ServerUnavailableError

_END_S = 1800.0
_START_S = 3.0
_FIRST_SPAN_S = 12.0
_TRIES = 3


class TargetResult(msgspec.Struct):
    """What was seen at a target; of several, each record counts at each of them.

    `in_doubt`: what neither is committed nor has gone: records of open transactions. `kills`: of whole runs, by
    SIGKILL. `pending`: datasets whose sequence is not done.
    """

    produced: int = 0
    visible: int = 0
    duplicates: int = 0
    missing: int = 0
    in_doubt: int = 0
    kills: int = 0
    pending: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether each record is there once, and nothing is left in between."""
        return not (self.duplicates or self.missing or self.in_doubt or self.pending)


class SinksResult(msgspec.Struct):
    """`left_out`: targets that were not run, with the reason."""

    targets: dict[str, TargetResult] = {}
    left_out: dict[str, str] = {}
    seconds: dict[str, float] = {}

    @property
    def is_exact(self) -> bool:
        """Of all targets that were run."""
        return bool(self.targets) and all(target.is_exact for target in self.targets.values())


class Target(ABC):
    """Where a job's records go, and what is there."""

    copies = 1
    """How many times each record is to be visible in all: at so many targets."""

    def __init__(self, broker: KafkaServer, folder: Path, topics: Sequence[str]) -> None:
        self.broker, self.folder, self.topics = broker, folder, topics
        self.name = f"out-{uuid.uuid4().hex[:8]}"

    @abstractmethod
    def sections(self) -> dict[str, Any]:
        """The job's sections that say where records go."""

    @abstractmethod
    def visible(self) -> Iterator[Counter[str]]:
        """The values that are there, at each target."""

    def in_doubt(self) -> int:
        """What is left in between."""
        return 0


class ToKafka(Target):
    """A topic for each topic."""

    def sink(self) -> dict[str, Any]:
        """The section `sink`."""
        brokers, topics = self.broker.bootstrap_servers, f"{self.name}-{{dataset}}"
        return {"type": "kafka", "brokers": brokers, "topic": topics, "create": True, "ledger": f"{self.name}.ledger"}

    def sections(self) -> dict[str, Any]:
        return {"sink": self.sink()}

    def visible(self) -> Iterator[Counter[str]]:
        topics = [f"{self.name}-{topic}" for topic in self.topics]
        yield Counter(
            (record.value() or b"").decode() for record in committed_records(self.broker.bootstrap_servers, topics)
        )

    def in_doubt(self) -> int:
        """Records between the last stable offset and the end."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        there = admin.list_topics(timeout=60).topics
        places = [
            TopicPartition(topic, partition)
            for topic in there
            if topic.startswith(self.name)
            for partition in there[topic].partitions
        ]
        ends = [
            sum(
                found.result(60).offset
                for found in admin.list_offsets(
                    {place: OffsetSpec.latest() for place in places},  # type: ignore[no-untyped-call]
                    isolation_level=isolation,
                ).values()
            )
            for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        ]
        return int(ends[0] - ends[1])


class FannedOut(ToKafka):
    """Each record to files, to an SQL table and to Kafka, under one watermark."""

    copies = 3

    def sections(self) -> dict[str, Any]:
        sqlite = "distcommit.testing.models.sqlite_sink:SqliteSink"
        table = {"type": "python", "class": sqlite, "options": {"path": str(self.folder / "rows.db")}}
        branches = {"topics": {"sink": self.sink()}, "table": {"sink": table}, "files": {"sink": {"type": "files"}}}
        return {"sink": None, "fork": {"type": "all", "branches": branches}}

    def visible(self) -> Iterator[Counter[str]]:
        yield from super().visible()
        db = sqlite3.connect(self.folder / "rows.db")
        rows = db.execute("SELECT columns FROM records").fetchall()
        db.close()
        yield Counter(base64.b64decode(msgspec.json.decode(row)["value"]).decode() for (row,) in rows)
        files = [
            path
            for path in (self.folder / "output").rglob("*.parquet")
            if not any(part.startswith((".", "_")) for part in path.relative_to(self.folder / "output").parts)
        ]
        yield Counter(
            value.decode()
            for path in files
            for value in pq.ParquetFile(path).read(columns=["value"])["value"].to_pylist()
        )


TARGETS: dict[str, type[Target]] = {"kafka": ToKafka, "fan_out": FannedOut}
_NOT_BUILT = ("postgresql_tables", "iceberg_tables", "iceberg_one_table")


def run_sinks(
    folder: Path, say: Say, *, topics: int, records: int, kills: int, seed: int = 1, only: Sequence[str] = ()
) -> SinksResult:
    """Runs the main jobs of all targets, or of those that are named.

    Args:
        folder: takes job files and what runs print.
        say: told what happens, a line each.
        topics: how many each job reads.
        records: of all topics together, produced a share before each run.
        kills: how many runs are killed.
        seed: chooses when.
        only: names of targets.

    Raises:
        ServerUnavailableError: if there is no Kafka broker to be had.
    """
    result = SinksResult(left_out=dict.fromkeys(_NOT_BUILT, "no sink of this kind is built"))
    with KafkaServer(heap_mb=1024) as broker:
        for name, kind in TARGETS.items():
            if only and name not in only:
                result.left_out[name] = "not asked for"
                continue
            place = folder / name
            place.mkdir()
            try:
                with timing(result.seconds, say, name):
                    result.targets[name] = _main_job(broker, kind, place, say, (topics, records, kills), seed)
            except ServerUnavailableError as error:
                result.left_out[name] = str(error)
            else:
                say(f"  {msgspec.json.encode(result.targets[name]).decode()}")
    return result


def _main_job(
    broker: KafkaServer, kind: type[Target], place: Path, say: Say, size: tuple[int, int, int], seed: int
) -> TargetResult:
    topics, records, kills = size
    prefix, chance = uuid.uuid4().hex[:8], random.Random(seed)
    names = [f"{prefix}.topic-{number:05d}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names], request_timeout=120).values():
        made.result(120)
    target, job = kind(broker, place, names), KafkaJob(place, broker, dict.fromkeys(names, 1))
    job.write()
    sections = {**yaml.safe_load(job.path.read_text()), **target.sections()}
    job.path.write_text(yaml.safe_dump({name: value for name, value in sections.items() if value is not None}))
    result, span_s, expected = TargetResult(), _FIRST_SPAN_S, set[str]()
    while result.kills < kills:
        _produce(job, names, records // (kills + 1), expected)
        for _ in range(_TRIES):
            began_s = time.monotonic()
            with job.start() as run:
                code = run.wait(_START_S + chance.random() * span_s)
                if code is None:
                    run.kill()
                    result.kills += 1
                    break
            span_s = max(1.0, time.monotonic() - began_s - _START_S)
            if code:
                raise RuntimeError(f"a run that nobody killed ended with {code}: {run.stderr.read_text()[-3000:]}")
        say(f"  {result.kills} kills, {len(expected)} records produced")
    _produce(job, names, records - len(expected), expected)
    job.run()
    result.pending = sum(row.status != "idle" for row in Job.from_file(job.path).status().datasets)
    result.produced = len(expected)
    for found in target.visible():
        result.visible += found.total()
        result.duplicates += found.total() - len(found)
        result.missing += len(expected - found.keys()) + len(found.keys() - expected)
    result.in_doubt = target.in_doubt()
    return result


def _produce(job: KafkaJob, names: Sequence[str], records: int, expected: set[str]) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers, "linger.ms": 20})
    for _ in range(records):
        number = len(expected)
        value = f"{names[number % len(names)]}/{number}"
        while True:
            try:
                producer.produce(names[number % len(names)], value, key=str(number))
                break
            except BufferError:
                producer.poll(0.1)
        expected.add(value)
    if left := producer.flush(120):
        raise TimeoutError(f"{left} records are not acknowledged")
