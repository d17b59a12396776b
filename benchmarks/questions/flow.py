"""The cost of typed flows: a chain beside plain pyarrow, Avro by a registry beside Spark's own, a fork beside its
writers.

It also measures the megabytes a second from Kafka through a flow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.arms.flows import TYPED_JSON, PlainArrow, ProductFlow, fork_arms, typed_batches
from benchmarks.arms.typed_topics import OurRun, SparkFromAvro, TopicsArm
from benchmarks.questions.typed_throughput import throughput
from benchmarks.questions.typed_turns import Make, copied, in_turns, produced
from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Tell
from benchmarks.session import spark_session
from benchmarks.workloads.typed_records import (
    AVRO_SCHEMA,
    HeldSource,
    as_avro,
    as_batches,
    as_json,
    events,
    expected_digest,
)
from tests.servers.java import jars
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError
from tests.servers.registered_records import register
from tests.servers.registry import RegistryServer

_SLOTS = 2
_NOTES = [
    "ratios are medians of paired samples: quotients within a turn, in which each arm had one; _cpu: of processor time "
    "(all threads of the process) instead of the wall's",
    "chain_over_plain_pyarrow: records a second of ours over plain_pyarrow's. One thread each, batches in memory: JSON "
    "to columns, a tenth filtered out, two casts, Parquet (zstd level 1, row groups of 64 MiB). ours: a task attempt "
    "with staging, footers, page checksums, file checksums and content sums; without the run around it, and unsynced",
    "avro_over_spark: records a second of ours (a whole run, synced, exactly once) over spark_from_avro's, from the "
    "same broker and to the same columns on the same local[2] session; Spark's registry is none: the schema is given",
    "fork_over_writers: time of a fork to Parquet and Avro (deflated by zstd) over the sum of the two writers alone, "
    "which are given the same typed batches; lower is better",
    "values: see the parameters; equal typed columns are asserted before a time counts",
]


def flow(
    *,
    records: int,
    note_bytes: int,
    topics: int,
    partitions: int,
    topic_records: int,
    typed_records: int,
    repeats: int,
    kafka_repeats: int,
    seed: int,
    folder: Path,
    tell: Tell,
) -> Results:
    """Measure flows in memory, then runs from Kafka.

    Args:
        records: in memory, for chain and fork.
        note_bytes: of each record's long text.
        topics: of JSON, and of Avro.
        partitions: of each topic.
        topic_records: records of each partition of Avro.
        typed_records: records of each partition of JSON: many, so that a run's fixed cost is small.
        repeats: samples of each arm in memory.
        kafka_repeats: samples of each arm that reads from Kafka.
        seed: of the values.
        folder: on the measured disk.
        tell: receives each sample.

    Raises:
        ServerUnavailableError: if no Kafka broker or registry is available.
    """
    samples, value_bytes = _in_memory(records, note_bytes, repeats, seed, folder, tell)
    with ExitStack() as stack:
        brokers = stack.enter_context(KafkaServer()).bootstrap_servers
        registry = stack.enter_context(RegistryServer()).url
        connectors, reason = _connectors()
        spark, _ = stack.enter_context(spark_session(_SLOTS, {"spark.driver.memory": "4g", **connectors}))
        records_of = partial(events, topics * partitions * topic_records, seed, note_bytes)
        schema_id = register(registry, "avro-value", json.dumps(AVRO_SCHEMA))
        by_registry = OurRun("ours_avro", spark, [{"type": "avro", "registry": {"url": registry}}])
        theirs = SparkFromAvro(spark, reason)
        skipped = {theirs.name: theirs.missing()} if theirs.missing() else {}
        avro_arms: list[TopicsArm] = [by_registry] if skipped else [by_registry, theirs]
        values, expected = as_avro(records_of(), schema_id), expected_digest(records_of())
        large, warm = produced("avro", brokers, topics, partitions, values, tell)
        samples += copied(avro_arms, large, warm, expected, kafka_repeats, folder, tell)
        records_of = partial(events, topics * partitions * typed_records, seed, note_bytes)
        typed = throughput(spark, brokers, topics, partitions, records_of, kafka_repeats, folder, tell)
    return results_of(
        "flow",
        {**_ratios(samples), **typed.ratios},
        [*samples, *typed.samples],
        seed=seed,
        folder=folder,
        parameters={
            "records": records,
            "json_value_bytes": round(value_bytes),
            "topics": topics,
            "partitions": partitions,
            "topic_records": topic_records,
            "typed_records": typed_records,
            "repeats": repeats,
            "kafka_repeats": kafka_repeats,
            "spark_jars": " ".join(Path(path).name for path in connectors.get("spark.jars", "").split(",")),
        },
        skipped=skipped,
        notes=[*_NOTES, *typed.notes],
    )


def _in_memory(
    records: int, note_bytes: int, repeats: int, seed: int, folder: Path, tell: Tell
) -> tuple[list[Sample], float]:
    """Measure chain and fork, and return the mean size of a value too."""
    made = partial(events, records, seed, note_bytes)
    source = HeldSource(as_batches(as_json(made())))
    expected = expected_digest(made(), with_noise=False)
    ours, plain = ProductFlow("ours_chain", TYPED_JSON, source), PlainArrow(source.batches)
    chains: list[tuple[str, Make]] = [(ours.name, ours.make), (plain.name, plain.make)]
    forks = [(arm.name, arm.make) for arm in fork_arms(HeldSource(typed_batches(source.batches)))]
    samples = in_turns(chains, records, expected, repeats, folder, tell)
    samples += in_turns(forks, records, expected, repeats, folder, tell)
    return samples, sum(batch.column("value").nbytes for batch in source.batches) / records


def _connectors() -> tuple[dict[str, str], str]:
    """Return the session settings for Spark's Kafka source and Avro functions, or why they are unavailable."""
    try:
        paths = [path for kind in ("spark-kafka", "spark-avro") for path in jars(kind).glob("*.jar")]
    except ServerUnavailableError as error:
        return {}, str(error)
    return {"spark.jars": ",".join(sorted(map(str, paths)))}, ""


def _ratios(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the medians of quotients within a turn."""
    turns: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        turns.setdefault(sample.repeat, {})[sample.arm] = sample

    def middle(over: Callable[[dict[str, Sample]], float], *arms: str) -> float:
        return median(over(turn) for turn in turns.values() if turn.keys() >= set(arms))

    chain, fork = ("plain_pyarrow", "ours_chain"), ("ours_fork", "writer_parquet", "writer_avro")
    ratios = {
        "chain_over_plain_pyarrow": middle(lambda t: t["plain_pyarrow"].seconds / t["ours_chain"].seconds, *chain),
        "chain_over_plain_pyarrow_cpu": middle(
            lambda t: t["plain_pyarrow"].parts["cpu_s"] / t["ours_chain"].parts["cpu_s"], *chain
        ),
        "fork_over_writers": middle(
            lambda t: t["ours_fork"].seconds / (t["writer_parquet"].seconds + t["writer_avro"].seconds), *fork
        ),
        "fork_over_writers_cpu": middle(
            lambda t: (
                t["ours_fork"].parts["cpu_s"] / (t["writer_parquet"].parts["cpu_s"] + t["writer_avro"].parts["cpu_s"])
            ),
            *fork,
        ),
    }
    if "spark_from_avro" in turns[0]:
        both = ("spark_from_avro", "ours_avro")
        ratios["avro_over_spark"] = middle(lambda t: t["spark_from_avro"].seconds / t["ours_avro"].seconds, *both)
    ratios["records_per_s_ours_avro"] = middle(
        lambda t: t["ours_avro"].parts["records"] / t["ours_avro"].seconds, "ours_avro"
    )
    return ratios
