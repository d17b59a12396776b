"""The kill soak on real servers: it also restarts the NameNode, a broker and Spark's workers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.checkers.soak import SERVERS, Place, Server, Strike
from tests.cluster.servers import cluster_job, servers
from tests.jobs.kafka_job import KafkaJob

_TOPICS = {f"topic-{number:02d}": 2 for number in range(40)}
_SECTIONS = {
    "commit": {"buckets": 8, "min_interval_ms": 200},
    "lock": {"lease_ttl_s": 2},
    "spark": {
        "partitions": 4,
        # two applications of two cores fit beside each other: a frozen one keeps its executors
        "conf": {
            "spark.task.maxFailures": 16,
            "spark.cores.max": 2,
            "spark.executor.cores": 1,
            "spark.executor.memory": "480m",
        },
    },
}
_AWAY_S = 2.0
_IDLE_S = 20.0
_OF_SPARK = (b"CoarseGrainedExecutorBackend", b"pyspark.daemon")


class OnServers(Place):
    """Kafka of two brokers, HDFS, and a Spark cluster of two workers."""

    passing = (*Place.passing, *(Strike(server, freeze=False) for server in SERVERS))

    @contextlib.contextmanager
    def open_job(self, folder: Path) -> Iterator[KafkaJob]:
        with servers(brokers=2) as self._servers:
            yield cluster_job(self._servers, folder, _TOPICS, **_SECTIONS)

    def others(self) -> list[int]:
        return self._servers.spark.processes()

    def restart(self, server: Server, rng: random.Random) -> None:
        match server:
            case "name-node":
                self._servers.hdfs.restart_name_node()
            case "broker":
                self._servers.kafka.kill_broker(2)
                time.sleep(_AWAY_S * rng.random())
                self._servers.kafka.start_broker(2)
            case "spark-worker":
                worker = rng.choice((1, 2))
                self._servers.spark.kill_worker(worker)
                time.sleep(_AWAY_S * rng.random())
                self._servers.spark.start_worker(worker)

    def wait_until_idle(self) -> None:
        """Wait until executors of a dead driver have ended by themselves, and kill those that have not."""
        deadline_s = time.monotonic() + _IDLE_S
        while remaining := [pid for pid in self.others() if _is_of_an_application(pid)]:
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if time.monotonic() > deadline_s else signal.SIGCONT)
            time.sleep(0.2)


def _is_of_an_application(pid: int) -> bool:
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(part in command for part in _OF_SPARK)
    return False
