"""Small partitions of a topic share a writer, and so a file: they are one work unit, which wins or loses as one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from distcommit import Job
from distcommit.app.demo.kill import CommitWatcher
from tests.jobs.kafka_job import kafka_job

PARTITIONS = 40


def files_by_epoch(folder: Path, topic: str) -> dict[str, list[set[int]]]:
    """The partitions that are in each file of a topic, by the epoch in its name; read by pyarrow alone."""
    found: dict[str, list[set[int]]] = {}
    for path in (folder / "output" / topic).rglob("*.parquet"):
        partitions = pq.read_table(path, partitioning=None)["kafka_partition"].to_pylist()
        found.setdefault(path.name.partition("-")[0], []).append(set(partitions))
    return found


@pytest.mark.slow
def test_small_partitions_share_one_file_and_a_kill_leaves_all_of_them_to_replay(tmp_path: Path) -> None:
    with kafka_job(
        tmp_path,
        {f"t{n}": PARTITIONS for n in range(4)},
        source={"records_per_work_unit": 1000},
        sink={"partition_by": None},
        commit={"buckets": 8, "min_interval_ms": 60_000},
    ) as job:
        for _ in range(2):
            job.produce(3)
            watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
            with job.start() as run:
                while not run.has_ended and not watcher.pending():
                    run.wait(0.002)
                assert not run.has_ended, "no run was killed in the middle of its commit"
                run.kill()
        job.run()
        for topic in job.topics:
            found = files_by_epoch(tmp_path, topic)
            assert found
            assert all(each == [set(range(PARTITIONS))] for each in found.values()), found
        job.assert_exact()
        job.write(source={"records_per_work_unit": 200})
        job.produce(6)  # 240 of a topic
        job.run()
        for topic in job.topics:
            newest = max(files_by_epoch(tmp_path, topic).items())[1]
            assert len(newest) == 2
            assert Counter(one for each in newest for one in each) == Counter(range(PARTITIONS))
        job.assert_exact()
