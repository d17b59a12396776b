"""What do typed flows cost: a chain next to plain pyarrow, Avro by a registry next to Spark's own, a fork next to its
writers; and how many megabytes a second go from Kafka through one?"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.arms.flows import TYPED_JSON, PlainArrow, ProductFlow, fork_arms, typed_batches
from benchmarks.arms.typed_topics import OurRun, SparkFromAvro, TopicsArm, TypedTopics
from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Parts, Tell, WrongResultError, scratch
from benchmarks.session import spark_session
from benchmarks.workloads.topics import send
from benchmarks.workloads.typed_records import (
    AVRO_SCHEMA,
    HeldSource,
    as_avro,
    as_batches,
    as_json,
    digests_of,
    events,
    expected_digest,
)
from tests.servers.java import jars
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError
from tests.servers.registered_records import register
from tests.servers.registry import RegistryServer

_SLOTS = 2
Make = Callable[[Path], Parts]
"""Makes files below an empty folder, and says what that took."""

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
    "typed_mb_per_s: megabytes (10^6 bytes) of Kafka values a second through that chain, by a whole run on local[2], "
    "with the broker on the same cores; parts: seconds of phases, and of all tasks in each converter",
    "values: see the parameters; equal typed columns are asserted before a time counts",
]


def flow(
    *,
    records: int,
    note_bytes: int,
    topics: int,
    partitions: int,
    topic_records: int,
    repeats: int,
    seed: int,
    folder: Path,
    tell: Tell,
) -> Results:
    """Times flows in memory, then runs from Kafka.

    Args:
        records: in memory, for chain and fork.
        note_bytes: of each record's long text.
        topics: of JSON, and of Avro.
        partitions: of each topic.
        topic_records: records of each partition.
        repeats: samples of each arm.
        seed: what values are made from.
        folder: on the disk that is measured.
        tell: told each sample.

    Raises:
        ServerUnavailableError: if there is no Kafka broker or registry to be had.
    """
    samples, value_bytes = _in_memory(records, note_bytes, repeats, seed, folder, tell)
    with ExitStack() as stack:
        brokers = stack.enter_context(KafkaServer()).bootstrap_servers
        registry = stack.enter_context(RegistryServer()).url
        connectors, reason = _connectors()
        spark, _ = stack.enter_context(spark_session(_SLOTS, {"spark.driver.memory": "4g", **connectors}))
        made = partial(events, topics * partitions * topic_records, seed, note_bytes)
        schema_id = register(registry, "avro-value", json.dumps(AVRO_SCHEMA))
        by_registry = OurRun("ours_avro", spark, [{"type": "avro", "registry": {"url": registry}}])
        theirs = SparkFromAvro(spark, reason)
        skipped = {theirs.name: theirs.missing()} if theirs.missing() else {}
        avro_arms: list[TopicsArm] = [by_registry] if skipped else [by_registry, theirs]
        json_arms: list[TopicsArm] = [OurRun("ours_typed_json", spark, TYPED_JSON["converters"])]
        values, expected = as_avro(made(), schema_id), expected_digest(made())
        large, warm = _produced("avro", brokers, topics, partitions, values, tell)
        samples += _copied(avro_arms, large, warm, expected, repeats, folder, tell)
        values, expected = as_json(made()), expected_digest(made(), with_noise=False)
        large, warm = _produced("json", brokers, topics, partitions, values, tell)
        samples += _copied(json_arms, large, warm, expected, repeats, folder, tell)
    return results_of(
        "flow",
        _ratios(samples, large.payload_bytes),
        samples,
        seed=seed,
        folder=folder,
        parameters={
            "records": records,
            "json_value_bytes": round(value_bytes),
            "topics": topics,
            "partitions": partitions,
            "topic_records": topic_records,
            "repeats": repeats,
            "spark_jars": " ".join(Path(path).name for path in connectors.get("spark.jars", "").split(",")),
        },
        skipped=skipped,
        notes=_NOTES,
    )


def _in_memory(
    records: int, note_bytes: int, repeats: int, seed: int, folder: Path, tell: Tell
) -> tuple[list[Sample], float]:
    """Chain and fork, and the mean size of a value."""
    made = partial(events, records, seed, note_bytes)
    source = HeldSource(as_batches(as_json(made())))
    expected = expected_digest(made(), with_noise=False)
    ours, plain = ProductFlow("ours_chain", TYPED_JSON, source), PlainArrow(source.batches)
    chains: list[tuple[str, Make]] = [(ours.name, ours.make), (plain.name, plain.make)]
    forks = [(arm.name, arm.make) for arm in fork_arms(HeldSource(typed_batches(source.batches)))]
    samples = _in_turns(chains, records, expected, repeats, folder, tell)
    samples += _in_turns(forks, records, expected, repeats, folder, tell)
    return samples, sum(batch.column("value").nbytes for batch in source.batches) / records


def _connectors() -> tuple[dict[str, str], str]:
    """What a session needs for Spark's Kafka source and Avro functions, or why it can't be had."""
    try:
        found = [path for kind in ("spark-kafka", "spark-avro") for path in jars(kind).glob("*.jar")]
    except ServerUnavailableError as error:
        return {}, str(error)
    return {"spark.jars": ",".join(sorted(map(str, found)))}, ""


def _produced(
    kind: str, brokers: str, topics: int, partitions: int, values: Sequence[bytes], tell: Tell
) -> tuple[TypedTopics, TypedTopics]:
    """The topics that are measured, and a small one to begin with."""
    tell(f"producing {len(values)} records of {kind}")

    def sent(prefix: str, topics: int, values: Sequence[bytes]) -> TypedTopics:
        names = tuple(f"{prefix}-{number:03d}" for number in range(topics))
        send(brokers, names, partitions, values)
        return TypedTopics(brokers, names, partitions, -(-len(values) // topics // partitions), sum(map(len, values)))

    return sent(kind, topics, values), sent(f"warm-{kind}", 1, values[:1000])


def _copied(
    arms: Sequence[TopicsArm],
    topics: TypedTopics,
    warm: TypedTopics,
    expected: str,
    repeats: int,
    folder: Path,
    tell: Tell,
) -> list[Sample]:
    for arm in arms:  # what is loaded and compiled once is nobody's
        with scratch(folder) as root:
            arm.copy(warm, root)
    makes: list[tuple[str, Make]] = [(arm.name, partial(arm.copy, topics)) for arm in arms]
    return _in_turns(makes, topics.records_in_all, expected, repeats, folder, tell)


def _in_turns(
    arms: Sequence[tuple[str, Make]], records: int, expected: str, repeats: int, folder: Path, tell: Tell
) -> list[Sample]:
    """Samples of each arm; they take turns, and another one begins each time.

    Raises:
        WrongResultError: if what an arm has written is not what it should be.
    """
    samples = []
    for repeat in range(repeats):
        first = repeat % len(arms)
        for name, make in [*arms[first:], *arms[:first]]:
            with scratch(folder) as root:
                parts = make(root)
                found = digests_of(root)
            if set(found.values()) != {expected}:
                raise WrongResultError(f"{name} has {found}, expected {expected}")
            seconds = parts.pop("seconds")
            tell(f"{name} #{repeat + 1}: {seconds:.2f} s, {records / seconds:,.0f} records/s")
            rounded = {key: round(value, 6) for key, value in parts.items()}
            samples.append(Sample(name, 1, 1, repeat, round(seconds, 6), {"records": float(records)} | rounded))
    return samples


def _ratios(samples: Sequence[Sample], payload_bytes: int) -> dict[str, float]:
    """Medians of quotients within a turn."""
    turns: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        turns.setdefault(sample.repeat, {})[sample.arm] = sample

    def middle(over: Callable[[dict[str, Sample]], float]) -> float:
        return median(over(turn) for turn in turns.values())

    found = {
        "chain_over_plain_pyarrow": middle(lambda t: t["plain_pyarrow"].seconds / t["ours_chain"].seconds),
        "chain_over_plain_pyarrow_cpu": middle(
            lambda t: t["plain_pyarrow"].parts["cpu_s"] / t["ours_chain"].parts["cpu_s"]
        ),
        "fork_over_writers": middle(
            lambda t: t["ours_fork"].seconds / (t["writer_parquet"].seconds + t["writer_avro"].seconds)
        ),
        "fork_over_writers_cpu": middle(
            lambda t: (
                t["ours_fork"].parts["cpu_s"] / (t["writer_parquet"].parts["cpu_s"] + t["writer_avro"].parts["cpu_s"])
            )
        ),
    }
    if "spark_from_avro" in turns[0]:
        found["avro_over_spark"] = middle(lambda t: t["spark_from_avro"].seconds / t["ours_avro"].seconds)
    found["typed_mb_per_s"] = middle(lambda t: payload_bytes / 1e6 / t["ours_typed_json"].seconds)
    found["records_per_s_ours_avro"] = middle(lambda t: t["ours_avro"].parts["records"] / t["ours_avro"].seconds)
    return found
