"""Small partitions of a topic share a work unit, a writer and a file; several work units read a large partition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distcommit import Job
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import kafka_job

PARTITIONS = 40


def files_by_epoch(folder: Path, topic: str) -> dict[str, list[set[int]]]:
    """Return the partitions in each file of a topic, by the epoch in its name; read by pyarrow alone."""
    partitions_by_epoch: dict[str, list[set[int]]] = {}
    for path in (folder / "output" / topic).rglob("*.parquet"):
        partitions = pq.read_table(path, partitioning=None)["kafka_partition"].to_pylist()
        partitions_by_epoch.setdefault(path.name.partition("-")[0], []).append(set(partitions))
    return partitions_by_epoch


def work_units(folder: Path, topic: str) -> dict[str, Counter[int]]:
    """Return how many records of which partitions each work unit has published, by epoch and work unit."""
    counts: dict[str, Counter[int]] = {}
    for path in (folder / "output" / topic).rglob("*.parquet"):
        unit = "-".join(path.name.split("-")[:2])
        counts.setdefault(unit, Counter()).update(pq.read_table(path, partitioning=None)["kafka_partition"].to_pylist())
    return counts


def test_multi_work_units_and_split_datasets_keep_a_watermark_for_each_dataset(
    tmp_path: Path, spark: SparkSession
) -> None:
    topics = {"many-small": 7, "one-large": 1, "one-small": 1}
    with kafka_job(tmp_path, topics, source={"records_per_work_unit": 20}) as job:
        job.topics = {"many-small": 7, "one-small": 1}
        job.produce(6)
        job.topics = {"one-large": 1}
        job.produce(50)
        first = Job.from_file(job.path, session=spark).run()
        by_topic = {topic: work_units(tmp_path, topic) for topic in topics}
        job.topics = {"many-small": 7}
        job.produce(2)
        second = Job.from_file(job.path, session=spark).run()
        status = Job.from_file(job.path).status()
        job.assert_exact()
    assert first.succeeded
    assert first.totals.datasets_published == 3
    by_size = {topic: sorted(map(Counter.total, units.values())) for topic, units in by_topic.items()}
    assert by_size == {"many-small": [6, 18, 18], "one-large": [16, 17, 17], "one-small": [6]}
    assert sorted(map(len, by_topic["many-small"].values())) == [1, 3, 3], "partitions of a work unit"
    assert set(by_topic["many-small"].keys()).isdisjoint(by_topic["one-large"].keys())
    after = {topic: work_units(tmp_path, topic) for topic in topics}
    assert second.succeeded
    assert second.totals.datasets_published == 1
    assert [after[topic] == by_topic[topic] for topic in topics] == [False, True, True], "the others have nothing new"
    (more,) = (units for unit, units in after["many-small"].items() if unit not in by_topic["many-small"])
    assert more == dict.fromkeys(range(7), 2), "all seven are one work unit"
    positions = {row.dataset: row.positions for row in status.datasets}
    assert positions == {
        "many-small": {str(partition): 8 for partition in range(7)},
        "one-large": {"0": 50},
        "one-small": {"0": 6},
    }


@pytest.mark.slow
def test_small_partitions_share_a_file_and_are_replayed_together_after_a_kill(tmp_path: Path) -> None:
    with kafka_job(
        tmp_path,
        {f"t{n}": PARTITIONS for n in range(4)},
        source={"records_per_work_unit": 1000},
        sink={"partition_by": None},
        commit={"buckets": 8, "min_interval_ms": 60_000},
    ) as job:
        for _ in range(2):
            job.produce(3)
            assert killed_in_commit(job.path, job.start), "no run was killed in the middle of its commit"
        job.run()
        for topic in job.topics:
            epochs = files_by_epoch(tmp_path, topic)
            assert epochs
            assert all(item == [set(range(PARTITIONS))] for item in epochs.values()), epochs
        job.assert_exact()
        job.write(source={"records_per_work_unit": 200})
        job.produce(6)  # 240 of a topic
        job.run()
        for topic in job.topics:
            newest = max(files_by_epoch(tmp_path, topic).items())[1]
            assert len(newest) == 2
            assert Counter(one for item in newest for one in item) == Counter(range(PARTITIONS))
        job.assert_exact()
