"""Records that a job cannot decode, or whose schema has changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from distcommit.app.demo.broker import MockBroker
from tests.drills.drill import Drilled, KafkaSituation, drilled
from tests.drills.quick_drills import Printed, a_job
from tests.drills.registry import drill

_TOPICS = ["good", "bad"]
_KILLING = "tests.integration.breaking_converter:Killing"


@drill("RECORDS_REJECTED", "RUN_FAILED")
def poisoned_record(folder: Path) -> Drilled:
    """One record among good ones cannot be decoded."""
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder)
        json = {"type": "json", "fields": {"n": "int64"}}
        situation.on(broker.bootstrap_servers, _TOPICS, commit={"buckets": 2}, converters=[json])
        for topic in _TOPICS:
            situation.numbers(topic, 5)
        situation.run(0)
        situation.produce("bad", b'{"n":1000}', b"poison", b'{"n":1001}')
        situation.produce("good", b'{"n":1002}')
        situation.run(1)
        cause = "bad could not be read: bad: RECORD_REJECTED: a record is rejected"
        return drilled(situation, cause, rejected=Counter([b"poison"]))


@drill("RECORDS_MOSTLY_REJECTED", quick=True)
def declared_type_that_no_record_has(folder: Path) -> Drilled:
    """All records are rejected, until the operator corrects the type and processes them again."""
    wrong, right = ([{"type": "json", "fields": {"n": kind}}] for kind in ("string", "int64"))
    rejecting: dict[str, Any] = {"converters": wrong, "on_rejected": "divert", "readers": {"kept_snapshots": 2}}
    with a_job(folder, runs=0, records=12, **rejecting) as situation:
        situation.run(0)
        printed = Printed(situation)
        printed.type(printed.problem("RECORDS_MOSTLY_REJECTED: .* 12 of 12 records")["command"])
        situation.write(converters=right)
        printed.type(f"distcommit dataset reprocess {situation.path} --all")
        situation.run(0)  # deletes the old error files
        return printed.ended()


@drill("WORKER_DIED")
def record_that_kills_its_worker(folder: Path) -> Drilled:
    """One record kills the Python worker that converts it, until the operator corrects the converter."""
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder)
        json = {"type": "json", "fields": {"n": "int64"}}
        killing = {
            "type": "python",
            "class": "tests.integration.breaking_converter:Killing",
            "options": {"number": 5000},
        }
        situation.on(broker.bootstrap_servers, _TOPICS, commit={"buckets": 2}, converters=[json, killing])
        for topic in _TOPICS:
            situation.numbers(topic, 5)
        situation.run(0)
        situation.produce("bad", b'{"n":5000}')
        situation.produce("good", b'{"n":1002}')
        situation.run(1)
        cause = "WORKER_DIED: bad could not be read: bad: WORK_UNIT_KILLS_WORKER: a worker died twice"
        return drilled(situation, cause, act=lambda: situation.write(converters=[json]))


@drill("NEW_FIELDS_REJECTED")
def schema_broken(folder: Path) -> Drilled:
    """A producer begins to send a field that the job must not add by itself."""
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder)
        json = {"type": "json", "evolution": "fail"}
        situation.on(broker.bootstrap_servers, _TOPICS, commit={"buckets": 2}, converters=[json])
        for topic in _TOPICS:
            situation.produce(topic, b'{"n":1,"of":"%s"}' % topic.encode(), b'{"n":2,"of":"%s"}' % topic.encode())
        situation.run(0)
        situation.produce("bad", b'{"n":3,"of":"bad","note":"new"}')
        situation.produce("good", b'{"n":3,"of":"good"}')
        situation.run(1)

        def run_as_ever() -> None:
            situation.produce("bad", b'{"n":4,"of":"bad","note":"known by now"}', b'{"n":5,"of":"bad"}')
            situation.run(0)

        cause = "bad could not be read: bad: RECORD_FIELDS_NEW: a record has fields that those before do not have.*note"
        return drilled(situation, cause, afterwards=run_as_ever)
