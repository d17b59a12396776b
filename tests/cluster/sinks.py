"""Sinks' main jobs at size: topics from Kafka to a target by `distcommit run`, killed at random moments, then run to
the end.

Queries that share no code with the sink count the visible records at the target.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from distcommit.app.jobs.job import Job
from tests.cluster.sink_targets import TARGETS, Target
from tests.cluster.timing import Say, timing
from tests.jobs.kafka_job import KafkaJob
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError

_END_S = 1800.0
_START_S = 3.0
_FIRST_SPAN_S = 12.0
_TRIES = 3


class TargetResult(msgspec.Struct):
    """Counts at a target; if there are several, each record counts at each of them.

    `in_doubt`: open transactions and data files of no table. `kills`: of whole runs, by SIGKILL. `pending`: datasets
    with an open sequence.
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
        """Return whether each record is there once, and nothing is left unfinished."""
        return not (self.duplicates or self.missing or self.in_doubt or self.pending)


class SinksResult(msgspec.Struct):
    """Results of all targets. `left_out`: skipped targets, with the reason."""

    targets: dict[str, TargetResult] = {}
    left_out: dict[str, str] = {}
    seconds: dict[str, float] = {}

    @property
    def is_exact(self) -> bool:
        """Return whether all targets that ran are exact."""
        return bool(self.targets) and all(target.is_exact for target in self.targets.values())


def run_sinks(
    folder: Path, say: Say, *, topics: int, records: int, kills: int, seed: int = 1, only: Sequence[str] = ()
) -> SinksResult:
    """Run the main jobs of all targets, or of the named ones.

    Args:
        folder: for job files and the runs' output.
        say: receives each event, a line each.
        topics: the number that each job reads.
        records: of all topics together, produced a share before each run.
        kills: how many runs are killed.
        seed: chooses the moments.
        only: names of targets.

    Raises:
        ServerUnavailableError: if no Kafka broker is available.
    """
    result = SinksResult()
    with KafkaServer(heap_mb=1024) as broker:
        for name, kind in TARGETS.items():
            if only and name not in only:
                result.left_out[name] = "not asked for"
                continue
            place = folder / name
            place.mkdir()
            try:
                with timing(result.seconds, say, name), ExitStack() as stack:
                    target = kind(broker, place, _made_topics(broker, topics), stack)
                    result.targets[name] = _main_job(target, say, records, kills, seed)
            except ServerUnavailableError as error:
                result.left_out[name] = str(error)
            else:
                say(f"  {msgspec.json.encode(result.targets[name]).decode()}")
    return result


def _made_topics(broker: KafkaServer, topics: int) -> list[str]:
    prefix = uuid.uuid4().hex[:8]
    names = [f"{prefix}.topic-{number:05d}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for creation in admin.create_topics([NewTopic(name, 1, 1) for name in names], request_timeout=120).values():
        creation.result(120)
    return names


def _main_job(target: Target, say: Say, records: int, kills: int, seed: int) -> TargetResult:
    names, chance = target.topics, random.Random(seed)
    job = KafkaJob(target.folder, target.broker, dict.fromkeys(names, 1))
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
                raise RuntimeError(f"an undisturbed run ended with {code}: {run.stderr.read_text()[-3000:]}")
        say(f"  {result.kills} kills, {len(expected)} records produced")
    _produce(job, names, records - len(expected), expected)
    code, printed, errors = job.cli("run", timeout_s=_END_S)
    if code:
        raise RuntimeError(f"the last run ended with {code}: {printed} {errors[-3000:]}")
    result.pending = sum(row.status != "idle" for row in Job.from_file(job.path).status().datasets)
    result.produced = len(expected)
    for values in target.visible():
        result.visible += values.total()
        result.duplicates += values.total() - len(values)
        result.missing += len(expected - values.keys()) + len(values.keys() - expected)
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
    if unacknowledged := producer.flush(120):
        raise TimeoutError(f"{unacknowledged} records are not acknowledged")
