"""The delay from the last read of a dataset's records to their publication, while ingest continues."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median, quantiles

from pyspark.sql import SparkSession

from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Tell, WrongResultError, scratch
from benchmarks.session import session_or
from benchmarks.workloads.ingested import JOB, roots_of, run_settings
from benchmarks.workloads.source import NumberedSource
from distcommit.core.records.log_records import Done
from distcommit.engine.driver.run import run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.spark.task_launch import SparkLaunch
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.state.job_store import JobStore, open_store
from distcommit.stores.state.task_states import PastStates


def visibility(
    datasets: int,
    *,
    records: int,
    buckets: int,
    repeats: int,
    folder: Path,
    tell: Tell,
    spark: SparkSession | None = None,
) -> Results:
    """Run the product on two slots, and derive the times from its stored state.

    A dataset's delay is from its last task state's `finished_ms` (its files are closed then) to the ctime of the
    segment with its DONE: when that got its name. A sample's seconds are the 99th percentile.
    """
    samples: list[Sample] = []
    delays_of_all: list[float] = []
    with session_or(spark) as (session, partitions):
        for repeat in range(repeats):
            with scratch(folder) as root:
                store = open_store(LocalFileSystem(), roots_of(root), JOB, buckets, create=True)
                settings = run_settings(store, NumberedSource(datasets, records), min(partitions, buckets))
                began = time.perf_counter()
                result = run(SparkLaunch(session), settings)
                wall = time.perf_counter() - began
                if result.totals.datasets_published != datasets:
                    raise WrongResultError(f"{result.totals.datasets_published} of {datasets} datasets published")
                delays = _delays(store, settings)
                in_drain = result.seconds["drain"]
            parts = _spread(delays) | {"wall_s": wall, "ingest_s": result.seconds["ingest"], "drain_s": in_drain}
            samples.append(Sample("ours", datasets, 1, repeat, parts["p99_s"], parts))
            delays_of_all += delays
            tell(f"{datasets} datasets #{repeat + 1}: {parts}")
    return results_of(
        "visibility",
        _spread(delays_of_all),
        samples,
        seed=0,
        folder=folder,
        parameters={"datasets": datasets, "records": records, "buckets": buckets, "repeats": repeats},
        notes=["seconds from a dataset's files closed to its DONE; p99_s over all datasets of all repeats"],
    )


def _delays(store: JobStore, settings: RunSettings) -> list[float]:
    """Return the seconds by dataset."""
    delays: list[float] = []
    past = PastStates(store.fs, store.roots.store)
    for bucket in range(store.buckets):
        finished: dict[str, int] = {}
        for state in past.of(settings.run_id, bucket):
            finished[state.dataset_urn] = max(state.finished_ms, finished.get(state.dataset_urn, 0))
        log = store.bucket_log(bucket).folder
        for name in os.listdir(log):
            path = f"{log}/{name}"
            record = decode_segment(store.fs.read(path), path).record
            if isinstance(record, Done):
                closed_ms = os.stat(path).st_ctime_ns / 1e6
                delays += [max(0.0, closed_ms - finished[one.dataset_urn]) / 1000 for one in record.sequences]
    return delays


def _spread(delays: list[float]) -> dict[str, float]:
    cuts = quantiles(delays, n=100, method="inclusive")
    return {"p50_s": median(delays), "p90_s": cuts[89], "p99_s": cuts[98], "max_s": max(delays)}
