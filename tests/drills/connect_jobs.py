"""A Spark Connect job, which a service cannot run."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distcommit.app.demo.broker import MockBroker
from distcommit.app.demo.killed_run import RunProcess
from tests.drills.drill import Drilled, KafkaSituation, NotBrokenError, Typed
from tests.drills.quick_drills import Printed
from tests.drills.registry import drill
from tests.jobs.victims import strike
from tests.servers.spark import SparkConnectServer

_TOPICS = ["a", "b"]
_INTERVAL_S = 3600
_WAIT_S = 240.0
_ENDED_BY_SIGNAL = 130


@contextmanager
def _refused(folder: Path, remote: str) -> Iterator[tuple[KafkaSituation, Printed, str]]:
    """Yield a Spark Connect job with unread records, and the refused command that was to serve it."""
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder)
        spark = {"remote": remote, "partitions": 4}
        schedule = {"interval_s": _INTERVAL_S}
        situation.on(broker.bootstrap_servers, _TOPICS, commit={"buckets": 2}, spark=spark, schedule=schedule)
        for topic in _TOPICS:
            situation.numbers(topic, 10)
        printed, command = Printed(situation), f"distcommit schedule serve {folder}"
        printed.refused(command, "a service has a Spark session of its own, and can't share one of Spark Connect", 2)
        yield situation, printed, command


def _events(service: RunProcess) -> list[dict[str, Any]]:
    """Return the events that a service has printed so far."""
    lines = service.stdout.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _serve_one_run(situation: KafkaSituation) -> int:
    """Serve the job's folder until a run has committed, end the service, and return its exit code."""
    command = ["schedule", "serve", str(situation.folder), "--json", "--poll", "0.2"]
    output, errors = situation.folder / "service.out", situation.folder / "service.err"
    until_s = time.monotonic() + _WAIT_S
    with RunProcess(command, output, errors) as service:
        while not any(event["event"] == "committed" for event in _events(service)):
            if service.has_ended or time.monotonic() > until_s:
                text = errors.read_text(encoding="utf-8")[-2000:]
                raise NotBrokenError(f"the service has not run the job: {_events(service)} {text}")
            time.sleep(0.05)
        strike(service, "driver", signal.SIGTERM, random.Random(1))
        code = service.wait(_WAIT_S)
    return -1 if code is None else code


@drill(
    "SPARK_CONNECT_NOT_SERVABLE: set spark.master in place of it, or have `distcommit run` started by another scheduler"
)
def serving_a_job_of_spark_connect(folder: Path) -> Drilled:
    """No server listens at the address: the job is refused before the address is contacted."""
    with _refused(folder, "sc://127.0.0.1:9") as (situation, printed, command):
        situation.write(spark={"master": "local[2,4]"})
        code = _serve_one_run(situation)
        printed.result.typed.append(Typed(command, code))
        if code != _ENDED_BY_SIGNAL:
            printed.result.problems.append(f"the service ended with {code}, not as SIGTERM ends it")
        return printed.ended()


@drill(
    "SPARK_CONNECT_NOT_SERVABLE: set spark.master in place of it, or have `distcommit run` started by another scheduler"
)
def running_a_job_of_spark_connect_without_a_service(folder: Path) -> Drilled:
    with SparkConnectServer() as server, _refused(folder, server.remote) as (situation, printed, _):
        printed.type(f"distcommit run {situation.path}")
        return printed.ended()
