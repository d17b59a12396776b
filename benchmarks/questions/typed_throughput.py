"""The megabytes a second from Kafka to Parquet through typed columns, and the limits on more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.arms.flows import TYPED_JSON
from benchmarks.arms.record_costs import ConsumeOnly, broker_seconds, record_costs
from benchmarks.arms.typed_topics import OurRun, TypedTopics
from benchmarks.questions.typed_turns import copied, produced
from benchmarks.results import Sample
from benchmarks.runner import Parts, Tell, scratch
from benchmarks.workloads.typed_records import as_json, expected_digest

_CORES = 2
_WHO = ("workers", "jvm", "driver", "broker")


@dataclass(frozen=True, slots=True)
class Throughput:
    """Measured throughput."""

    samples: Sequence[Sample]
    ratios: Mapping[str, float]
    notes: Sequence[str]


class _WithBroker(OurRun):
    """A run with the processor time of the broker."""

    def copy(self, topics: TypedTopics, root: Path) -> Parts:
        clock = broker_seconds()
        before = clock()
        parts = super().copy(topics, root)
        return parts | {"cpu_broker_s": clock() - before}


def throughput(
    spark: SparkSession,
    brokers: str,
    topics: int,
    partitions: int,
    made: Callable[[], Iterator[dict[str, Any]]],
    repeats: int,
    folder: Path,
    tell: Tell,
) -> Throughput:
    """Measure runs over all records, and over one record of each partition, which is the fixed cost of a run.

    Reading alone and the steps of one task are measured, too.

    Args:
        spark: a session of two slots.
        brokers: the Kafka for the topics.
        topics: their number.
        partitions: of each.
        made: the records.
        repeats: samples of each arm.
        folder: on the measured disk.
        tell: receives each sample.
    """
    converters = TYPED_JSON["converters"]
    expected = expected_digest(made(), with_noise=False)
    large, warm = produced("json", brokers, topics, partitions, as_json(made()), tell)
    samples = copied([_WithBroker("ours_typed_json", spark, converters)], large, warm, expected, repeats, folder, tell)
    few = topics * partitions
    expected = expected_digest(islice(made(), few), with_noise=False)
    small, warm = produced("few", brokers, topics, partitions, as_json(islice(made(), few)), tell)
    samples += copied(
        [_WithBroker("ours_few_records", spark, converters)], small, warm, expected, repeats, folder, tell
    )
    for repeat in range(repeats):
        with scratch(folder) as root:
            samples.append(_sample(ConsumeOnly().copy(large, root), "consume_only", repeat, large.records_in_all, tell))
        with scratch(folder) as root:
            if not repeat:
                record_costs(replace(large, records=min(large.records, 1000)), root / "first")
            costs = record_costs(large, root / "task")
        parts = {"seconds": costs["task"] * large.records / 1e6} | {f"{k}_us": value for k, value in costs.items()}
        samples.append(_sample(parts, "task_by_step", repeat, large.records, tell))
    ratios = _ratios(samples, large)
    return Throughput(samples, ratios, _notes(ratios, samples))


def _sample(parts: Parts, arm: str, repeat: int, records: int, tell: Tell) -> Sample:
    seconds = parts.pop("seconds")
    tell(f"{arm} #{repeat + 1}: {seconds:.2f} s, {records / seconds:,.0f} records/s")
    rounded = {key: round(value, 6) for key, value in parts.items()}
    return Sample(arm, 1, 1, repeat, round(seconds, 6), {"records": float(records)} | rounded)


def _ratios(samples: Sequence[Sample], topics: TypedTopics) -> dict[str, float]:
    megabytes, records = topics.payload_bytes / 1e6, topics.records_in_all

    def middle(arm: str, of: Callable[[Sample], float]) -> float:
        return median(of(sample) for sample in samples if sample.arm == arm)

    run_s, fixed_s = (middle(arm, lambda s: s.seconds) for arm in ("ours_typed_json", "ours_few_records"))
    ratios = {
        "typed_mb_per_s": megabytes / run_s,
        "typed_fixed_s": fixed_s,
        "typed_mb_per_s_without_fixed": megabytes / max(run_s - fixed_s, 1e-9),
        "consume_only_mb_per_s": middle("consume_only", lambda s: megabytes / s.seconds),
    }
    for user in _WHO:
        spent_s, fixed_s = (
            middle(arm, lambda s, user=user: s.parts[f"cpu_{user}_s"])  # type: ignore[misc]
            for arm in ("ours_typed_json", "ours_few_records")
        )
        ratios[f"us_a_record_{user}"] = (spent_s - fixed_s) * 1e6 / records
    for step in (part for part in samples[-1].parts if part.endswith("_us")):
        ratios[f"us_a_record_{step.removesuffix('_us')}"] = middle("task_by_step", lambda s, step=step: s.parts[step])  # type: ignore[misc]
    return ratios


def _notes(ratios: Mapping[str, float], samples: Sequence[Sample]) -> list[str]:
    """Return the meaning of the figures, and the parts of a record's time."""
    steps = [part.removesuffix("_us") for part in samples[-1].parts if part.endswith("_us") and part != "task_us"]
    by_step = ", ".join(f"{step} {ratios[f'us_a_record_{step}']:.2f}" for step in steps)
    by_process = ", ".join(f"{user} {ratios[f'us_a_record_{user}']:.2f}" for user in _WHO)
    whole = sum(ratios[f"us_a_record_{user}"] for user in _WHO)
    return [
        "typed_mb_per_s: megabytes (10^6 bytes) of Kafka values a second through that chain, by a whole run on "
        "local[2], synced, with the broker on the same cores; typed_fixed_s: such a run over one record of each "
        "partition; _without_fixed: as if that were nothing; parts of ours_typed_json: seconds of phases, of all tasks "
        "in each converter, and of processor time",
        "consume_only_mb_per_s: two processes of librdkafka that count messages and make nothing of them, with the "
        "broker on the same cores: no client goes beyond that here",
        f"where a record's time goes, in µs of processor time: {by_step}; together {ratios['us_a_record_task']:.2f} in "
        "a task of its own. consume: librdkafka with its thread; to_arrow: batches of messages; json to cast: the "
        "converters; content_sum; write: Parquet with checksums of pages and file, and its offsets; rest: what goes on "
        "beside these, and what they cost each other's caches",
        "the same of the whole run, by process, without what a run over one record of each partition takes: "
        f"{by_process}. Together {whole:.2f} µs, of which the broker's share is "
        f"{ratios['us_a_record_broker'] / whole:.0%}: {_CORES} cores that do nothing else would carry "
        f"{_CORES / whole * 1e6:,.0f} records a second",
    ]
