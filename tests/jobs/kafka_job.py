"""Jobs as users run them: a job file, the command line, a broker, and the produced records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml
from confluent_kafka import Producer

from distcommit.app.auditing.audit import AuditResult
from distcommit.app.demo.broker import MockBroker
from distcommit.app.demo.killed_run import RunProcess
from distcommit.app.jobs.job import Job
from tests.jobs.commands_here import MASTER, run_here

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
DAY_MS = 86_400_000
FIRST_DAY_MS = 1_700_000_000_000


class Broker(Protocol):
    """Kafka broker, real or mocked."""

    @property
    def bootstrap_servers(self) -> str:
        """Return the clients' setting: host:port, separated by commas."""
        ...


@dataclass
class KafkaJob:
    """A job on a broker, which counts its produced records."""

    folder: Path
    broker: Broker
    topics: dict[str, int]
    produced: int = 0
    runs: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    has_own_processes: bool = False
    """Whether no command runs in this process: Spark's workers do not see variables that a test sets later."""

    @property
    def path(self) -> Path:
        return self.folder / "job.yaml"

    def write(self, **sections: Any) -> None:
        """Write the job file; sections replace or add to the previous ones, and None removes one."""
        base: dict[str, Any] = {
            "job": "test",
            "source": {"type": "kafka", "brokers": self.broker.bootstrap_servers, "topics": sorted(self.topics)},
            "sink": {"partition_by": {"granularity": "day"}},
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 8},
            "spark": {"master": MASTER},
        }
        for section, value in {**self.config, **sections}.items():
            both = isinstance(base.get(section), dict) and isinstance(value, dict)
            base[section] = {**base[section], **value} if both else value
        self.config = base
        base = {section: value for section, value in base.items() if value is not None}
        self.path.write_text(yaml.safe_dump(base))

    def produce(self, records: int, days: int = 1) -> None:
        """Send this many records to every partition, spread over days of message time."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 5})
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                for number in range(records):
                    value = f'{{"topic":"{topic}","partition":{partition},"n":{self.produced}}}'
                    time_ms = FIRST_DAY_MS + number % days * DAY_MS
                    producer.produce(topic, value, partition=partition, timestamp=time_ms)
                    self.produced += 1
                producer.poll(0)
        assert producer.flush(60) == 0

    def cli(self, command: str, *arguments: str, timeout_s: float = 240) -> tuple[int, dict[str, Any], str]:
        """Run a CLI command; return its exit code, its JSON, and its error output.

        If the job's Spark settings are those of the session that tests share, the command runs in this process, unless
        the job has processes of its own.
        """
        words = [*command.split(), str(self.path), "--json", *arguments]
        if not self.has_own_processes and self.config.get("spark") == {"master": MASTER}:
            done = run_here(words, PACKAGE_ROOT)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "distcommit", *words],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                cwd=PACKAGE_ROOT,
                check=False,
            )
        lines = done.stdout.strip().splitlines()
        return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr

    def run(self, *arguments: str) -> dict[str, Any]:
        """Run the job to its end, which must be a success."""
        code, result, errors = self.cli("run", *arguments)
        assert code == 0, f"exit code {code}: {result} {errors[-3000:]}"
        return result

    def start(self, *arguments: str) -> RunProcess:
        """Start the job in the background."""
        self.runs += 1
        name = self.folder / f"run-{self.runs}"
        command = ["run", str(self.path), "--json", *arguments]
        return RunProcess(command, name.with_suffix(".out"), name.with_suffix(".err"))

    def audit(self, *, deep: bool = True) -> AuditResult:
        return Job.from_file(self.path).audit(deep=deep)

    def assert_exact(self) -> None:
        """Assert that every produced record is published once, or once in an error file, and nothing else is there."""
        audit = self.audit()
        audit.partitions = []
        assert audit.exact, audit
        assert audit.records + audit.rejected_records == self.produced


@contextmanager
def kafka_job(folder: Path, topics: dict[str, int], **sections: Any) -> Iterator[KafkaJob]:
    """Yield a job with these topics (partitions by name) on a broker that lives as long as the block."""
    with MockBroker.start(topics) as broker:
        job = KafkaJob(folder, broker, topics)
        job.write(**sections)
        yield job
