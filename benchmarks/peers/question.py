"""The product beside competing systems, and the results of kills for each."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.flink import FlinkFiles
from benchmarks.peers.iceberg import IcebergConnect, IcebergWorkers
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import MANY_TOPICS, Peer, Place
from benchmarks.peers.records import Stream
from benchmarks.peers.report import PeerReport, PeerResults, is_busy, ratios_of, settled
from benchmarks.peers.spark import SparkDelta, SparkFiles
from benchmarks.peers.steady import NotStartedError, steady
from benchmarks.peers.struck import struck
from benchmarks.results import host, versions
from benchmarks.runner import Tell, scratch
from tests.servers.java import jars
from tests.servers.kafka import KafkaServer

PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (Ours, SparkFiles, FlinkFiles, IcebergConnect, IcebergWorkers, SparkDelta)
}
FEW_TOPICS = 100
_BATCHES, _CALM_WITHIN_S = 20, 180.0
_NOTES = [
    "each by itself, on topics of its own with the same records, from a new Kafka of two brokers on the same machine",
    "all are told the same seconds between two commits; freshness is at best half of that",
    "records/s: one burst, from its first record sent to its last one visible, on a peer that runs; with few records "
    "the interval bounds it, and CPU s / million says more",
    "memory: resident, of all its processes, added up: pages that they share count twice",
    "bold: the best of those that showed every record; in brackets: of a peer that did not; "
    "nothing by the wall's clock is in bold where any of them had a busy machine",
    "duplicates and missing: by an audit that reads visible Parquet files and compares numbers with those sent",
]


def peers(
    *,
    only: Sequence[str],
    topics: int,
    records: int,
    kills: int,
    interval_s: int,
    idle_s: float,
    seed: int,
    folder: Path,
    tell: Tell,
) -> PeerResults:
    """Measure each peer with 100 topics and, if `topics` is larger, with that many; then kill it.

    Args:
        only: names of peers; all if empty.
        topics: of one partition each.
        records: of a burst.
        kills: how often each is killed in the middle of a commit; 0: it is not struck at all.
        interval_s: seconds between two commits, as each is configured.
        idle_s: seconds that each is left alone; 0: not at all.
        seed: of texts, and of the kills' moments.
        folder: on the measured disk.
        tell: receives each step.

    Raises:
        ServerUnavailableError: if no Kafka is available.
    """
    jars("kafka")
    few = min(topics, FEW_TOPICS)
    reports = []
    for name in only or PEERS:
        peer = PEERS[name]()
        command = f"python -m benchmarks peers --json --peer {name} --topics {topics} --records {records}"
        command = f"{command} --kills {kills} --interval-s {interval_s} --idle-s {idle_s:g}"
        report = PeerReport(name, peer.system, "measured", command, dict(peer.settings))
        reports.append(report)
        if reason := peer.missing():
            report.status, report.reason = "not started", reason
            continue
        report.load_1m = _load_once_calm()
        try:
            for size in sorted({few, topics}):
                with (
                    scratch(folder) as root,
                    KafkaServer(brokers=2, heap_mb=512 if size <= MANY_TOPICS else 1536) as kafka,
                ):
                    place = _place(kafka, root, f"{name}-s{size}", size, interval_s, seed)
                    report.steady.append(steady(peer, place, records, idle_s, tell))
            if kills:
                with scratch(folder) as root, KafkaServer(brokers=2, lossy=True) as kafka:
                    place = _place(kafka, root, f"{name}-k", few, interval_s, seed)
                    batch = max(few, records // _BATCHES)
                    tried = {"kills": kills, "batch": batch, "seed": seed}
                    struck(peer, place, kafka, **tried, tell=tell, found=report.struck)
        except NotStartedError as error:
            report.status, report.reason = "not started", str(error)
        except Exception as error:  # noqa: BLE001 - the others are measured all the same
            report.status, report.reason = "failed", f"{type(error).__name__}: {error}"
        report.struck = settled(report.struck)
        if report.reason:
            tell(f"{name} {report.status}: {report.reason}")
    parameters = {"topics": topics, "records": records, "kills": kills, "interval_s": interval_s, "idle_s": idle_s}
    results = PeerResults("peers", reports, host(folder), versions(), seed, dict(parameters), _NOTES)
    results.ratios = ratios_of(results)
    return results


def _load_once_calm() -> float:
    """Return the machine's load once the previous peer's has ended, or after some minutes."""
    deadline_s = time.monotonic() + _CALM_WITHIN_S
    while is_busy(load := os.getloadavg()[0], os.cpu_count() or 1) and time.monotonic() < deadline_s:
        time.sleep(1)
    return round(load, 2)


def _place(kafka: KafkaServer, root: Path, prefix: str, topics: int, interval_s: int, seed: int) -> Place:
    stream = Stream(kafka.bootstrap_servers, prefix.replace("_", "-"), topics, seed=seed)
    stream.make_topics()
    return Place(root, stream, interval_s, kafka.proxy)
