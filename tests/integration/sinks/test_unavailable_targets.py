"""Jobs whose target refuses one dataset or is unavailable for a while, by `distcommit run` on real systems.

The other datasets are committed, nothing is half committed, and in the end each record is there once, by queries
that do not use the sinks' code.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records
from tests.servers.nessie import NessieServer

ROWS = 30
REFUSED = "d3"


class Target(ABC):
    """Target that counts its records without the sink's code."""

    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """Return the `sink` section of a job file."""

    @abstractmethod
    def ids(self) -> Counter[str]:
        """Return how often each record is there."""


class RefusingTarget(Target):
    """Target that can refuse one dataset.

    Attributes: refusal: the reason that is reported for that dataset.
    """

    refusal: ClassVar[str]

    @contextmanager
    @abstractmethod
    def refusing(self, dataset: str) -> Iterator[None]:
        """Refuse that dataset inside of the block."""


class ServedTarget(RefusingTarget):
    """Target on a server."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it by SIGKILL."""

    @abstractmethod
    def start(self) -> None:
        """Start it again."""


class KafkaTopics(ServedTarget):
    refusal = "TOPIC_AUTHORIZATION_FAILED"

    def __init__(self, server: KafkaServer) -> None:
        self._server, self._name = server, uuid.uuid4().hex

    def sink(self) -> dict[str, Any]:
        security = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        user = {"sasl.username": KafkaServer.user, "sasl.password": KafkaServer.password}
        topics = {"topic": f"{self._name}-{{dataset}}", "create": True, "ledger": f"{self._name}.ledger"}
        more = {
            "transactional_ids": 3,
            "transaction_timeout_s": 10,
            "request_timeout_s": 5,
            "format": "json",
            "key": "",
        }
        brokers = self._server.sasl_bootstrap_servers
        return {"type": "kafka", "brokers": brokers, "client": {**security, **user}, **topics, **more}

    def ids(self) -> Counter[str]:
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap_servers, "log_level": 0})
        topics = [topic for topic in admin.list_topics(timeout=20).topics if topic.startswith(f"{self._name}-")]
        records = committed_records(self._server.bootstrap_servers, topics)
        return Counter(json.loads(record.value() or b"")["id"] for record in records)

    @contextmanager
    def refusing(self, dataset: str) -> Iterator[None]:
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap_servers})
        of = (ResourceType.TOPIC, f"{self._name}-{dataset}", ResourcePatternType.LITERAL, "User:*", "*")
        readable = AclBinding(*of, AclOperation.READ, AclPermissionType.ALLOW)
        for future in admin.create_acls([readable]).values():
            future.result(20)
        yield
        for future in admin.delete_acls([AclBindingFilter(*of, AclOperation.ANY, AclPermissionType.ANY)]).values():
            future.result(20)

    def kill(self) -> None:
        self._server.kill_broker(1)

    def start(self) -> None:
        self._server.start_broker(1)


class IcebergTables(ServedTarget):
    """Iceberg tables by a REST catalog."""

    refusal = "is not allowed"

    def __init__(self, server: NessieServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._namespace = f"n{uuid.uuid4().hex}"

    def sink(self) -> dict[str, Any]:
        files = dict.fromkeys(("write.data.path", "write.metadata.path"), f"file://{self._folder}/tables")
        catalog = {"type": "rest", "uri": self._server.url}
        return {"type": "iceberg", "catalog": catalog, "namespace": self._namespace, "properties": files}

    def ids(self) -> Counter[str]:
        with load_catalog("default", type="rest", uri=self._server.url) as client:
            if not client.namespace_exists(self._namespace):
                return Counter()
            tables = [client.load_table(name) for name in client.list_tables(self._namespace)]
            return Counter(name for table in tables for name in table.scan().to_arrow()["id"].to_pylist())

    @contextmanager
    def refusing(self, dataset: str) -> Iterator[None]:
        self._restart(forbidding=dataset)
        yield
        self._restart()

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def _restart(self, forbidding: str = "") -> None:
        self._server.kill()
        self._server.forbidden = forbidding
        self._server.start()


class DeltaTables(RefusingTarget):
    """Delta tables in a folder, which is made immutable to refuse a dataset: root ignores its mode."""

    refusal = "Operation not permitted"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tables"
        self._folder.mkdir()

    def sink(self) -> dict[str, Any]:
        return {"type": "delta", "location": str(self._folder)}

    def ids(self) -> Counter[str]:
        tables = [DeltaTable(log.parent) for log in self._folder.glob("*/_delta_log")]
        return Counter(name for table in tables for name in table.to_pyarrow_table()["id"].to_pylist())

    @contextmanager
    def refusing(self, dataset: str) -> Iterator[None]:
        if shutil.which("chattr") is None:
            pytest.skip("there is no chattr on PATH (Debian: e2fsprogs)")
        log = self._folder / dataset / "_delta_log"
        subprocess.run(["chattr", "+i", log], check=True)
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", log], check=True)


class FilesJob:
    """Job that reads JSON files, some for each dataset, into a target."""

    def __init__(self, folder: Path, target: Target, datasets: int) -> None:
        self.folder, self.target, self.datasets = folder, target, [f"d{number}" for number in range(datasets)]
        self.path = folder / "job.yaml"
        self._arrived = 0
        job = {
            "job": "to-a-target",
            "source": {
                "type": "files",
                "paths": [f"{folder}/in/{{dataset}}/*.jsonl"],
                "format": "jsonl",
                "min_file_age_s": 0,
            },
            "converters": [{"type": "json", "fields": {"id": "string", "n": "int64"}}],
            "sink": target.sink(),
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 4},
            "spark": {"master": "local[2,4]"},
        }
        self.path.write_text(yaml.safe_dump(job))

    def arrive(self) -> None:
        """Add a file to each dataset."""
        for dataset in self.datasets:
            inbox = self.folder / "in" / dataset
            inbox.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"id": f"{dataset}/{self._arrived}/{row}", "n": row}) for row in range(ROWS)]
            (inbox / f"{self._arrived}.jsonl").write_text("\n".join(lines) + "\n")
        self._arrived += 1

    def arrived(self, *but: str, files: int | None = None) -> dict[str, int]:
        """Return all records in the input, each once."""
        return {
            f"{dataset}/{file}/{row}": 1
            for dataset in self.datasets
            for file in range(self._arrived if files is None or dataset not in but else files)
            for row in range(ROWS)
        }

    def start(self) -> RunProcess:
        """Start a run."""
        return RunProcess(["run", str(self.path), "--json"], self.folder / "out", self.folder / "err", niceness=0)

    def run(self) -> int:
        """Return the exit code of a run."""
        with self.start() as run:
            code = run.wait(400)
            assert code is not None, self.said()
            return code

    def said(self) -> str:
        """Return the end of the last run's output."""
        return (self.folder / "err").read_text()[-3000:]

    def assert_exact(self) -> None:
        """Assert that the output is exact, by the target itself and by a deep audit."""
        assert self.target.ids() == self.arrived()
        job = Job.from_file(self.path)
        assert {row.status for row in job.status().datasets} == {"idle"}
        audit = job.audit(deep=True)
        assert audit.exact, audit


@pytest.fixture(params=["kafka", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("iceberg", "delta"))])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RefusingTarget]:
    if request.param == "delta":
        yield DeltaTables(tmp_path)
        return
    with _with_server(request.param, tmp_path) as own_target:
        yield own_target


@contextmanager
def _with_server(kind: str, folder: Path) -> Iterator[ServedTarget]:
    if kind == "kafka":
        with KafkaServer() as kafka:
            yield KafkaTopics(kafka)
    else:
        with NessieServer() as nessie:
            yield IcebergTables(nessie, folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_dataset_refused_by_its_target_waits_and_others_are_committed(tmp_path: Path, target: RefusingTarget) -> None:
    job = FilesJob(tmp_path, target, datasets=6)
    job.arrive()
    assert job.run() == 0, job.said()
    job.arrive()
    with target.refusing(REFUSED):
        assert job.run() == 1, job.said()
        states = {row.dataset: row for row in Job.from_file(job.path).status().datasets}
        assert {name: row.status for name, row in states.items()} == {
            name: "pending" if name == REFUSED else "idle" for name in job.datasets
        }
        assert target.refusal in states[REFUSED].reason, states[REFUSED]
        assert target.ids() == job.arrived(REFUSED, files=1), "nothing of it, and all of the others"
    assert job.run() == 0, job.said()
    job.assert_exact()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["kafka", "iceberg"])
def test_target_killed_in_a_run_and_restarted_has_each_record_once(tmp_path: Path, kind: str) -> None:
    with _with_server(kind, tmp_path) as target:
        job = FilesJob(tmp_path, target, datasets=60)
        job.arrive()
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start() as run:
            deadline_s = time.monotonic() + 300
            while not watcher.pending():
                assert run.wait(0.002) is None, job.said()
                assert time.monotonic() < deadline_s, job.said()
            target.kill()
            assert run.wait(3) is None, "it waits for the target, or reads on"
            target.start()
            assert run.wait(400) is not None, job.said()
        missing = len(job.arrived()) - target.ids().total()
        assert {row.status for row in Job.from_file(job.path).status().datasets} <= {"idle", "pending"}
        assert job.run() == 0, f"{missing} records were left: {job.said()}"
        job.assert_exact()
