"""Positions of other systems: their meaning, and errors that name each unusable entry before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distcommit import Job
from distcommit.app.migration.foreign_positions import ForeignPositions, read_positions
from distcommit.core.errors import ConfigurationError

JOB = """\
job: moved
source: {type: kafka, brokers: "127.0.0.1:1", topics: [orders, users], topic_patterns: ["t[0-9]+"]}
paths: {store: store, staging: staging, output: output}
commit: {buckets: 4, durability: none}
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "job.yaml").write_text(JOB)
    return Job.from_file(tmp_path / "job.yaml")


def read(job: Job, file: Path, text: str) -> ForeignPositions:
    file.write_text(text, encoding="utf-8")
    return read_positions(job.config, file, None)


def task(topic: str, ids: dict[str, str], mark: object, **more: str) -> dict[str, Any]:
    """Return a task state as written by Gobblin's TaskState.toJson(writer, keepConfig=true): all properties are
    texts."""
    properties = {"topic.name": topic, "extract.table.name": topic, **ids, **more}
    if mark is not None:
        properties["workunit.state.actual.high.water.mark"] = json.dumps({"values": mark})
    return {
        "task id": f"task_{topic}",
        "task state": "COMMITTED",
        "start time": 1,
        "end time": 2,
        "duration": 1,
        "retry count": 0,
        "properties": properties,
    }


def job_state(*tasks: dict[str, Any], began_ms: int = 100) -> dict[str, Any]:
    """Return a job state as written by JobState.toJson."""
    return {
        "job name": "Ingest",
        "job id": f"job_Ingest_{began_ms}",
        "job state": "COMMITTED",
        "start time": began_ms,
        "end time": began_ms + 10,
        "duration": 10,
        "tasks": len(tasks),
        "completed tasks": len(tasks),
        "task states": list(tasks),
    }


class TestCsv:
    def test_csv_offset_is_the_next_offset_to_read(self, job: Job, tmp_path: Path) -> None:
        text = "\ufeffdataset,partition,next_offset\norders,0,12\norders,10,0\n\nusers,0,5\n"
        positions = read(job, tmp_path / "p.csv", text)
        assert positions.datasets == {"orders": {"0": 12, "10": 0}, "users": {"0": 5}}

    def test_each_invalid_csv_line_is_named(self, job: Job, tmp_path: Path) -> None:
        lines = [
            "orders,0,5",
            "orders,0,6",
            "orders,1",
            "orders,x,5",
            "orders,01,5",
            "orders,1,-1",
            "orders,1,1.5",
            "other,0,5",
            ",0,5",
            f"orders,2,{2**63}",
        ]
        with pytest.raises(ConfigurationError) as caught:
            read(job, tmp_path / "p.csv", "\n".join(["dataset,partition,next_offset", *lines]))
        for number in range(3, 12):
            assert f"line {number}: " in str(caught.value)
        assert "line 2:" not in str(caught.value)
        assert "'other' partition 0 is not in a dataset of this job" in str(caught.value)

    @pytest.mark.parametrize("text", ["dataset,partition,offset\norders,0,5\n", "orders,0,5\n", ""])
    def test_csv_without_the_expected_header_is_refused(self, job: Job, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigurationError, match="first record that is not published yet"):
            read(job, tmp_path / "p.csv", text)

    def test_csv_line_of_another_partition_is_refused_for_a_single_partition_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text(JOB.replace("topics:", "dataset: partition, topics:"))
        job = Job.from_file(tmp_path / "job.yaml")
        head = "dataset,partition,next_offset\n"
        assert read(job, tmp_path / "p.csv", f"{head}orders@3,3,7\n").datasets == {"orders@3": {"3": 7}}
        with pytest.raises(ConfigurationError, match="line 2"):
            read(job, tmp_path / "p.csv", f"{head}orders@3,4,7\n")

    def test_missing_positions_file_is_refused(self, job: Job, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="can't be read"):
            read_positions(job.config, tmp_path / "none.csv", None)


class TestGobblin:
    def test_actual_high_watermark_of_gobblin_is_the_next_offset(self, job: Job, tmp_path: Path) -> None:
        export = job_state(
            task("orders", {"partition.id": "3"}, [120]),
            task("users", {"partition.id.0": "0", "partition.id.1": "2"}, [7, 9]),
            task("t1", {"partition.id": "0"}, [-1]),
            task("elsewhere", {"partition.id": "0"}, [1]),
        )
        positions = read(job, tmp_path / "e.json", json.dumps(export, indent="\t"))
        assert positions.datasets == {"orders": {"3": 120}, "users": {"0": 7, "2": 9}}
        assert positions.skipped == ["elsewhere: not a topic of this job", "t1 partition 0: Gobblin has never read it"]

    def test_gobblin_task_that_never_began_counts_at_its_low_watermark(self, job: Job, tmp_path: Path) -> None:
        interval = {"low.watermark.to.json": {"values": [40]}, "expected.watermark.to.json": {"values": [90]}}
        unread = task("orders", {"partition.id": "0"}, None, **{"watermark.interval.value": json.dumps(interval)})
        assert read(job, tmp_path / "e.json", json.dumps(job_state(unread))).datasets == {"orders": {"0": 40}}

    def test_newest_of_several_gobblin_job_states_counts(self, job: Job, tmp_path: Path) -> None:
        new = job_state(task("orders", {"partition.id": "0"}, [9]), began_ms=200)
        old = job_state(
            task("orders", {"partition.id": "0"}, [5]), task("users", {"partition.id": "0"}, [2]), began_ms=100
        )
        for states in ([old, new, new], [new, new, old]):
            positions = read(job, tmp_path / "e.json", json.dumps(states))
            assert positions.datasets == {"orders": {"0": 9}, "users": {"0": 2}}

    @pytest.mark.parametrize(
        ("bad", "named"),
        [
            ({"task id": "t", "task state": "COMMITTED"}, "export again with --keepConfig"),
            ({"task id": "t", "properties": {}}, "not a task of Gobblin's KafkaSource"),
            (task("orders", {"partition.id": "0"}, [5, 6]), "does not fit partitions 0"),
            (task("orders", {"partition.id": "0"}, ["5"]), "does not fit partitions 0"),
            (task("orders", {"partition.id": "x"}, [5]), "invalid literal"),
            (task("orders", {}, [5]), "partition.id"),
            (task("orders", {"partition.id": "0"}, None), "watermark.interval.value"),
            (task("users", {"partition.id": "0"}, [8]), "is at 7 and at 8"),
        ],
    )
    def test_each_invalid_gobblin_task_is_named(
        self, job: Job, tmp_path: Path, bad: dict[str, Any], named: str
    ) -> None:
        good = task("users", {"partition.id": "0"}, [7])
        with pytest.raises(ConfigurationError) as caught:
            read(job, tmp_path / "e.json", json.dumps(job_state(good, bad)))
        assert f"task {bad['task id']}" in str(caught.value)
        assert named in str(caught.value)

    @pytest.mark.parametrize("text", ["", "{", "[]", "[1]", '{"task states": 1}', json.dumps(job_state())])
    def test_invalid_gobblin_export_is_refused(self, job: Job, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigurationError):
            read(job, tmp_path / "e.json", text)
