"""The main job at size: thousands of topics from Kafka to HDFS on a Spark cluster.

Its driver is killed once, then a worker of the cluster; then it is finished and audited.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from confluent_kafka import Producer

from distcommit.app.auditing.audit import AuditResult
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from distcommit.app.jobs.job import Job
from distcommit.engine.driver.run import RunResult
from tests.cluster.servers import Servers, cluster_job, servers
from tests.cluster.timing import Say, timing
from tests.jobs.kafka_job import FIRST_DAY_MS, KafkaJob
from tests.jobs.victims import find

_END_S = 3600.0
_WORKER_AWAY_S = 5.0
_POLL_S = 1 / 1500
"""For each topic: reading the logs costs time, and must not happen after the run's end."""


class Size(msgspec.Struct, frozen=True):
    """Size of the job; `records` is the total of all topics."""

    topics: int = 3000
    partitions: int = 2
    records: int = 3_000_000
    value_bytes: int = 300
    buckets: int = 64
    broker_heap_mb: int = 1536


class RunRow(msgspec.Struct):
    """One run: its disturbance, its outcome, and the peak resident memory of its driver.

    `committed_before` and `pending` are datasets at the kill, or at the end of a run that was not killed.
    """

    struck: str
    exit_code: int
    seconds: float
    committed: int
    pending: int
    phases: dict[str, float] = {}
    replayed: int = 0
    datasets_published: int = 0
    records_published: int = 0
    driver_python_mb: float = 0
    driver_jvm_mb: float = 0


class MainJobResult(msgspec.Struct):
    """Result of the main job.

    `exact`: the audit is exact and counts all produced records. `idle`: a cold run without new records, in a new
    process with a new session and new executors. It comes right after "Spark alone": a process with the same session
    and two empty Spark jobs, as many as such a run has.
    """

    size: Size
    exact: bool = False
    records_produced: int = 0
    records_published: int = 0
    files: int = 0
    seconds: dict[str, float] = {}
    runs: list[RunRow] = []
    idle: RunRow | None = None
    audit: AuditResult | None = None


def main_job(size: Size, folder: Path, say: Say) -> MainJobResult:
    """Run the main job.

    Args:
        size: the job's size.
        folder: for the job file and the runs' output.
        say: receives each event, a line each.

    Raises:
        ServerUnavailableError: if a server is unavailable on this machine.
    """
    result, began_s = MainJobResult(size), time.monotonic()

    timed = partial(timing, result.seconds, say)
    with contextlib.ExitStack() as stack:
        with timed("servers started"):
            at = stack.enter_context(servers(broker_heap_mb=size.broker_heap_mb))
        with timed("topics made"):
            topics = {f"main.topic-{number:05d}": size.partitions for number in range(size.topics)}
            source = {"topics": [], "topic_patterns": [r"main\..*"]}
            job = cluster_job(at, folder, topics, source=source, commit={"buckets": size.buckets})
        with timed("records produced"):
            _produce(job, size)
        strikes: list[tuple[str, float, Callable[[RunProcess], None]]] = [
            ("driver killed", 1 / 3, lambda run: run.kill()),
            ("worker killed", 2 / 3, lambda run: _kill_worker(at, run)),
            ("", 1, lambda run: None),
        ]
        for place, (name, share, strike) in enumerate(strikes):
            with timed(f"run {place + 1}"):
                row = _run(job, name, int(share * size.topics), strike)
            result.runs.append(row)
            say(f"  {name or 'not disturbed'}: {msgspec.json.encode(row).decode()}")
        with timed("Spark alone, from cold"):
            subprocess.run([sys.executable, "-c", _SPARK_ALONE, str(job.path)], check=True, capture_output=True)
        with timed("run with nothing new"):
            result.idle = _run(job, "", 0, lambda run: None)
            result.idle.struck = "nothing new"
        say(f"  nothing new: {msgspec.json.encode(result.idle).decode()}")
        with timed("audit, deep"):
            result.audit = job.audit(deep=True)
    result.audit.partitions = []
    result.records_produced, result.records_published = job.produced, result.audit.records
    result.files = result.audit.files
    result.exact = result.audit.exact and result.records_published == result.records_produced
    result.seconds["in all"] = round(time.monotonic() - began_s, 1)
    return result


def _produce(job: KafkaJob, size: Size) -> None:
    """Produce each partition's share, one partition after the other: large batches for many partitions."""
    producer = Producer(
        {
            "bootstrap.servers": job.broker.bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    places = [(topic, partition) for topic, partitions in job.topics.items() for partition in range(partitions)]
    for at, (topic, partition) in enumerate(places):
        for number in range(size.records * at // len(places), size.records * (at + 1) // len(places)):
            value = b'{"n":%d,"text":"%s"}' % (number, os.urandom(size.value_bytes // 2).hex().encode())
            while True:
                try:
                    producer.produce(topic, value[: size.value_bytes - 2] + b'"}', partition=partition, timestamp=_TIME)
                    break
                except BufferError:
                    producer.poll(0.1)
            job.produced += 1
        producer.poll(0)
    unacknowledged = producer.flush(120)
    if unacknowledged:
        raise TimeoutError(f"{unacknowledged} records are not acknowledged")


_TIME = FIRST_DAY_MS
_SPARK_ALONE = """
import sys
from distcommit.app.jobs.job import Job
from distcommit.spark.session import open_session, stop_session
spark = open_session(Job.from_file(sys.argv[1]).config.spark, "nothing")
for _ in range(2):
    spark.sparkContext.parallelize(range(8), 8).mapPartitions(list).count()
stop_session(spark)
"""


def _run(job: KafkaJob, name: str, committed: int, strike: Callable[[RunProcess], None]) -> RunRow:
    """Run once; strike when that many datasets are committed and others are about to be."""
    watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
    began_s = time.monotonic()
    with job.start() as run, _Memory(run) as memory:
        before, pending = 0, 0
        while name and not run.has_ended and before < committed:
            run.wait(_POLL_S * len(job.topics))
            before = watcher.committed()
        while name and not run.has_ended and not (pending := len(watcher.pending())):
            pass
        if name:
            if run.has_ended:
                raise RuntimeError(f"the run ended before it could be struck: {run.stderr.read_text()[-3000:]}")
            strike(run)
        code = run.wait(_END_S)
        seconds = round(time.monotonic() - began_s, 1)
    if not name:
        before, pending = watcher.committed(), len(watcher.pending())
    row = RunRow(name, -1 if code is None else code, seconds, before, pending)
    row.driver_python_mb, row.driver_jvm_mb = memory.most_mb["driver"], memory.most_mb["jvm"]
    lines = run.stdout.read_text().strip().splitlines()
    if lines and "run_id" in lines[-1]:
        result = msgspec.json.decode(lines[-1], type=RunResult)
        row.phases, row.replayed = result.seconds, result.totals.sequences_replayed
        row.datasets_published, row.records_published = (
            result.totals.datasets_published,
            result.totals.records_published,
        )
    if code != (-9 if "driver" in name else 0):
        raise RuntimeError(f"the run ended with {code}: {lines[-1:]} {run.stderr.read_text()[-3000:]}")
    return row


def _kill_worker(at: Servers, run: RunProcess) -> None:
    """Kill one of Spark's workers with its executor; the cluster starts it again a little later."""
    at.spark.kill_worker(1)
    run.wait(_WORKER_AWAY_S)
    at.spark.start_worker(1)


class _Memory:
    """Sampler of the peak resident memory of the driver's Python and its JVM."""

    def __init__(self, run: RunProcess) -> None:
        self.most_mb = {"driver": 0.0, "jvm": 0.0}
        self._run, self._ended = run, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.5):
            for role in ("driver", "jvm"):
                for pid in find(self._run, role):
                    with contextlib.suppress(OSError):
                        fields = Path(f"/proc/{pid}/status").read_text().split()
                        if "VmHWM:" in fields:
                            resident_mb = int(fields[fields.index("VmHWM:") + 1]) / 1024
                            self.most_mb[role] = round(max(self.most_mb[role], resident_mb), 1)
