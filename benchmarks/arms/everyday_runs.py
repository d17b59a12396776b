"""The product's whole run, every few minutes, into existing folders: from the producer's last acknowledgement to a
reader's result."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession
from xxhash import xxh3_64_intdigest

from benchmarks.results import Sample
from benchmarks.runner import Parts, WrongResultError, scratch
from benchmarks.workloads.everyday_topics import ArrivingRecords
from benchmarks.workloads.processor import ProcessorTime
from benchmarks.workloads.requests import count_requests, counts_of
from benchmarks.workloads.sampling import SampledLaunch
from benchmarks.workloads.topics import NOTHING, shown
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.jobs.job import Job
from distcommit.app.reading.snapshot_reader import Snapshot, read
from distcommit.app.running import run_context
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import Done
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_settings import RunSettings
from distcommit.spark.task_launch import SparkLaunch
from distcommit.stores.logs.segment_format import decode_segment


class _Launches:
    """Launches as the product does, with each function sampled and its file system requests counted; counts Spark
    jobs."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._sampled, self.jobs = SampledLaunch(spark, folder), 0
        self.fs: FileSystem | None = None

    def __call__(self, function: Callable[..., Any], settings: RunSettings, tasks: int, kind: type[Any]) -> list[Any]:
        self.jobs += 1
        self.fs = settings.store.fs
        count_requests(self.fs)
        results: list[Any] = self._sampled(function, settings, tasks, kind)
        return results

    def requests(self) -> Counter[str]:
        """Return the requests of the executors, and of the driver from the first job on."""
        total = self._sampled.of_all()
        if self.fs is not None:
            total.update(counts_of(self.fs))
        return total

    def commit_seconds(self, slots: int) -> tuple[float, float]:
        """Return the parts of ingest that its slots spent on sealing and publishing, and on syncing staged files."""
        sampled = self._sampled.seconds_of("ingest_partition")
        return sampled["commit"] / slots, sampled["sync"] / slots


class EverydayJob:
    """The job of those topics below one place: a folder of this machine, or a URL.

    Args:
        spark: the Spark session.
        slots: of that session.
        records: the arriving records.
        place: `disk`, `hdfs` or `s3`, as samples name it.
        root: the folder or URL.
        scratch_folder: of this machine, for the executors' samples.
        buckets: of the store.
    """

    def __init__(
        self,
        spark: SparkSession,
        slots: int,
        records: ArrivingRecords,
        *,
        place: str,
        root: str,
        scratch_folder: Path,
        buckets: int,
    ) -> None:
        self._spark, self._slots, self._records, self._scratch = spark, slots, records, scratch_folder
        self.place, self._buckets = place, buckets
        tree = {
            "job": f"everyday-{place}",
            "source": {"type": "kafka", "brokers": records.brokers, "topics": list(records.names)},
            "sink": {"partition_by": {"column": "kafka_timestamp", "granularity": "day"}},
            "commit": {"buckets": buckets},
            "paths": {name: f"{root}/{name}" for name in ("store", "staging", "output")},
        }
        self._job = Job(parse_config(tree, scratch_folder / "job.yaml"), spark)
        self._folders = {name: f"{root}/{name}" for name in ("store", "output")}
        self._files = 0

    def catch_up(self) -> None:
        """Run once over the records sent before this job existed."""
        if self._records.digest != NOTHING:
            self._run()
            self._files = sum(map(len, self._read().paths().values()))

    def sample(self, repeat: int, sent_s: float) -> Sample:
        """Run once over the records sent until then (`time.time`), with the reader that waits for them.

        Raises:
            WrongResultError: if not exactly these records are visible.
        """
        before = self._sizes()
        result, wall, parts = self._run()
        cut = self._read()
        parts["sent_to_read_s"] = time.time() - sent_s
        self._require_seen(cut, result)
        parts |= self._published_after(sent_s, result) | self._growth(before)
        commit, drain = parts.pop("commit_in_ingest_s"), result.seconds.get("drain", 0.0)
        parts["commit_share_of_wall"] = (commit + drain) / wall
        parts["commit_share_of_wall_with_sync"] = (commit + drain + parts.pop("sync_in_ingest_s")) / wall
        return self._sample("ours_run", repeat, wall, parts)

    def idle(self, repeat: int, no_op_s: float) -> Sample:
        """Run once without new records. `no_op_s` is the time of an empty Spark job."""
        _, wall, parts = self._run()
        parts["in_spark_s"] = no_op_s * parts["spark_jobs"]
        parts["ours_s"] = wall - parts["in_spark_s"]
        return self._sample("ours_idle", repeat, wall, parts)

    def require_exact(self) -> None:
        """Read each record at the newest snapshot, and compare all of them with the sent ones.

        Raises:
            WrongResultError: if they differ.
        """
        cut, records, total = self._read(), 0, 0
        for urn in cut.datasets:
            values = cut.to_arrow(urn)["value"].to_pylist()
            records += len(values)
            total += sum(map(xxh3_64_intdigest, values))
        if (digest := shown(records, total)) != self._records.digest:
            raise WrongResultError(f"{self.place} has {digest}, expected {self._records.digest}")

    def _run(self) -> tuple[RunResult, float, Parts]:
        with scratch(self._scratch) as sampled, _launching(sampled) as launches:
            clock = ProcessorTime(self._spark)
            clocks, began = clock.seconds(), time.perf_counter()
            result = self._job.run()
            wall = time.perf_counter() - began
            took = clock.since(clocks)
            [launch] = launches
            commit, sync = launch.commit_seconds(self._slots)
            requests = launch.requests()
        if not result.succeeded:
            raise WrongResultError(f"the run did not succeed: {result.error or result.reasons.entries[:1]}")
        counted = {kind: float(n) for kind, n in requests.items() if kind.startswith(("requests", "bytes"))}
        parts = {f"{phase}_s": value for phase, value in result.seconds.items()} | took | counted
        return (
            result,
            wall,
            parts
            | {
                "commit_in_ingest_s": commit,
                "sync_in_ingest_s": sync,
                "spark_jobs": float(launch.jobs),
            },
        )

    def _read(self) -> Snapshot:
        return read(self._folders)

    def _require_seen(self, cut: Snapshot, result: RunResult) -> None:
        files = sum(map(len, cut.paths().values()))
        added, self._files = files - self._files, files
        expected = (self._records.files_a_run, self._records.records_a_run)
        if (added, result.totals.records_published) != expected:
            raise WrongResultError(
                f"{added} files and {result.totals.records_published} records can be seen more, expected {expected}"
            )

    def _published_after(self, sent_s: float, result: RunResult) -> Parts:
        """Return the seconds from sent to closed by dataset, by the times at which the segments with their DONE got
        their names.

        On this machine alone.
        """
        store = self._job.open_store(create=False)
        if store.fs.scheme != "file":
            return {}
        delays: list[float] = []
        for bucket in range(store.buckets):
            folder = store.bucket_log(bucket).folder
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if (closed_s := os.stat(path).st_ctime_ns / 1e9) < sent_s:
                    continue
                record = decode_segment(store.fs.read(path), path).record
                if isinstance(record, Done):
                    delays += [closed_s - sent_s] * len(record.sequences)
        if len(delays) != result.totals.datasets_published:
            raise WrongResultError(f"{len(delays)} datasets closed, {result.totals.datasets_published} published")
        return {"sent_to_published_p50_s": median(delays), "sent_to_published_p99_s": quantiles(delays, n=100)[98]}

    def _sizes(self) -> dict[str, int]:
        """Return the bytes below the folders; on this machine alone."""
        if "://" in self._folders["store"]:
            return {}
        return {name: _bytes_below(folder) for name, folder in self._folders.items()}

    def _growth(self, before: dict[str, int]) -> Parts:
        after = self._sizes()
        return {f"{name}_bytes_added": float(after[name] - size) for name, size in before.items()}

    def _sample(self, arm: str, repeat: int, wall: float, parts: Parts) -> Sample:
        rounded = {name: round(value, 6) for name, value in parts.items()}
        datasets = len(self._records.names)
        files = round(self._records.files_a_run / datasets)
        return Sample(f"{arm}_{self.place}", datasets, files, repeat, round(wall, 6), rounded)


@contextmanager
def _launching(folder: Path) -> Iterator[list[_Launches]]:
    """Launch the block's runs through `_Launches`, which are collected."""
    launches: list[_Launches] = []

    def make(spark: SparkSession) -> _Launches:
        launches.append(_Launches(spark, folder))
        return launches[-1]

    with patch.object(run_context, SparkLaunch.__name__, make):
        yield launches


def _bytes_below(folder: str) -> int:
    return sum(os.stat(f"{place}/{name}").st_size for place, _, names in os.walk(folder) for name in names)
