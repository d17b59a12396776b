"""The speed from Kafka topics to Parquet files, beside Spark's own way and a plain loop, and the commit's share."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.arms.kafka_to_parquet import Copy, OurCopy, PlainLoop, SparkCopy
from benchmarks.results import Results, Sample, medians, results_of
from benchmarks.runner import Tell, WrongResultError, scratch
from benchmarks.session import spark_session
from benchmarks.workloads.flame import drawn
from benchmarks.workloads.ingested import JOB, roots_of, run_settings
from benchmarks.workloads.sampling import SampledLaunch
from benchmarks.workloads.topics import Topics, digest_of_files, produce
from distcommit.engine.driver.run import run
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_time import TimePartition
from distcommit.sources.kafka.source import KafkaSource
from distcommit.stores.state.job_store import open_store
from tests.servers.java import jars
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError

_SLOTS = 2
_NOTES = [
    "ours: the whole run, synced, exactly once; spark, plain_loop: neither",
    "the same columns (spark has the topic, too), zstd at level 1, row groups of 64 MiB, a file for each partition",
    "one real broker on the same machine; Spark's Kafka source is the newest one to be had, not of PySpark's version",
    "commit: sampled in the executors every 5 ms, share of the slots' time in ingest, and all of drain; "
    "with_sync: and what makes staged files and task states durable",
    "content_sum_share: time that executors spend summing up the records' content, as a share of their time in ingest",
]


def ingest(
    *,
    topics: int,
    partitions: int,
    records: int,
    value_bytes: int,
    datasets: int,
    files: int,
    records_per_file: int,
    repeats: int,
    seed: int,
    folder: Path,
    flame: Path | None,
    tell: Tell,
) -> Results:
    """Measure the copies of some large topics, and the parts of a run over many small ones.

    Args:
        topics: large topics.
        partitions: partitions of each.
        records: records of each partition.
        value_bytes: bytes of a value.
        datasets: small topics.
        files: files of each: as many days of message time, a folder each.
        records_per_file: records of each file.
        repeats: samples of each.
        seed: of the values.
        folder: on the measured disk.
        flame: the file for a flame graph of one more run of the product over the large ones, which does not count.
        tell: receives each sample.

    Raises:
        ServerUnavailableError: if no Kafka broker is available.
    """
    with ExitStack() as stack:
        brokers = stack.enter_context(KafkaServer()).bootstrap_servers
        connector, reason = _connector()
        conf = {"spark.driver.memory": "4g", **connector}
        spark, slots = stack.enter_context(spark_session(_SLOTS, conf))
        tell(f"producing {topics * partitions * records} records")
        large = produce(brokers, "large", topics, partitions, records, value_bytes=value_bytes, days=1, seed=seed)
        arms: list[Copy] = [OurCopy(spark), SparkCopy(spark, reason), PlainLoop(_SLOTS)]
        skipped = {arm.name: missing for arm in arms if (missing := arm.missing())}
        ready = [arm for arm in arms if arm.name not in skipped]
        warm = produce(brokers, "warm", 2, partitions, 1000, value_bytes=value_bytes, days=1, seed=seed)
        for arm in ready:  # loading and compiling do not count
            _measure(arm, warm, -1, folder, tell)
        samples = [
            _measure(arm, large, repeat, folder, tell)
            for repeat in range(repeats)
            for arm in ready[repeat % len(ready) :] + ready[: repeat % len(ready)]
        ]
        if flame is not None:
            with scratch(folder) as root, drawn(flame):
                arms[0].copy(large, root)
        tell(f"producing {datasets * files * records_per_file} records")
        small = produce(
            brokers, "small", datasets, 1, files * records_per_file, value_bytes=value_bytes, days=files, seed=seed
        )
        shares = [_share("ours_many_datasets", spark, slots, small, n, folder, tell) for n in range(repeats)]
        large_shares = [_share("ours_large_sampled", spark, slots, large, n, folder, tell) for n in range(repeats)]
    seconds = medians(samples)
    ratios = {f"throughput_ours_over_{arm}": seconds[arm] / seconds["ours"] for arm in seconds if arm != "ours"}
    ratios |= {f"records_per_s_{arm}": large.records_in_all / took for arm, took in seconds.items()}
    for name in ("commit_share_of_wall", "commit_share_of_wall_with_sync"):
        ratios[name] = median(sample.parts[name] for sample in shares)
    ratios["content_sum_share"] = median(sample.parts["content_sum_share"] for sample in large_shares)
    ratios["content_sum_share_small_files"] = median(sample.parts["content_sum_share"] for sample in shares)
    return results_of(
        "ingest",
        ratios,
        samples + shares + large_shares,
        seed=seed,
        folder=folder,
        parameters={
            "topics": topics,
            "partitions": partitions,
            "records": records,
            "value_bytes": value_bytes,
            "datasets": datasets,
            "files": files,
            "records_per_file": records_per_file,
            "repeats": repeats,
            "spark_jars": " ".join(sorted(path.name for path in jars("spark-kafka").glob("*.jar")))
            if connector
            else "",
        },
        skipped=skipped,
        notes=_NOTES,
    )


def _connector() -> tuple[dict[str, str], str]:
    """Return the session settings for Spark's Kafka source, or why it is unavailable."""
    try:
        paths = sorted(map(str, jars("spark-kafka").glob("*.jar")))
    except ServerUnavailableError as error:
        return {}, str(error)
    return {"spark.jars": ",".join(paths)}, ""


def _measure(arm: Copy, topics: Topics, repeat: int, folder: Path, tell: Tell) -> Sample:
    with scratch(folder) as root:
        parts = arm.copy(topics, root)
        files, row_groups = check(arm.name, topics, root)
    seconds = parts.pop("seconds")
    tell(f"{arm.name} #{repeat + 1}: {seconds:.2f} s, {topics.records_in_all / seconds:,.0f} records/s")
    counts = {"files": float(files), "row_groups": float(row_groups), "records": float(topics.records_in_all)}
    return Sample(arm.name, len(topics.names), topics.partitions, repeat, round(seconds, 6), parts | counts)


def check(name: str, topics: Topics, root: Path) -> tuple[int, int]:
    """Return the number of files and row groups of a copy, which must hold each record once.

    Raises:
        WrongResultError: if it does not, or has not a file for each partition and day.
    """
    digest, files, row_groups = digest_of_files(root / "output")
    expected = len(topics.names) * topics.partitions * topics.days
    if (digest, files) != (topics.digest, expected):
        raise WrongResultError(f"{name} has {digest} in {files} files, expected {topics.digest} in {expected}")
    return files, row_groups


def _share(
    name: str, spark: SparkSession, partitions: int, topics: Topics, repeat: int, folder: Path, tell: Tell
) -> Sample:
    """Run once over all topics, with sampled executors."""
    with scratch(folder) as root:
        (root / "sampled").mkdir()
        fs = LocalFileSystem()
        store = open_store(fs, roots_of(root), JOB, 64, create=True)
        source = KafkaSource(
            type="kafka", brokers=topics.brokers, topics=topics.names, records_per_work_unit=topics.records
        )
        sink = FileSink(partition_by=TimePartition(column="kafka_timestamp", granularity="day"))
        settings = run_settings(store, source, partitions, sink)
        launch = SampledLaunch(spark, root / "sampled")
        began = time.perf_counter()
        result = run(launch, settings)
        wall = time.perf_counter() - began
        if not result.succeeded:
            raise WrongResultError(f"the run did not succeed: {result.error or result.reasons.entries[:1]}")
        check("ours", topics, root)
        sampled = launch.seconds_of("ingest_partition")
    commit, sync, drain = sampled["commit"] / _SLOTS, sampled["sync"] / _SLOTS, result.seconds["drain"]
    parts = {
        "commit_share_of_wall": (commit + drain) / wall,
        "commit_share_of_wall_with_sync": (commit + sync + drain) / wall,
        "commit_in_ingest_s": commit,
        "sync_in_ingest_s": sync,
        "task_seconds": sampled["seconds"],
        "content_sum_share": sampled["content"] / sampled["seconds"],
    } | {f"{phase}_s": value for phase, value in result.seconds.items()}
    tell(f"{name} #{repeat + 1}: {wall:.2f} s, {parts}")
    return Sample(name, len(topics.names), topics.days, repeat, round(wall, 6), parts)
