"""`spark.read.format("distcommit")`: the committed records of one snapshot, equal to those of `distcommit.read`."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import distcommit
from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.app.reading.spark_data_source import DistcommitDataSource
from distcommit.core.errors import CorruptError, DistcommitError
from distcommit.stores.snapshots.snapshot_retention import expire_older_snapshots
from tests.jobs.kafka_job import kafka_job

NAMES = ("items", "orders")
PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "guides" / "readers.md"


class Place:
    """Job on arriving files, run in one session that also reads through the data source."""

    def __init__(self, folder: Path, spark: SparkSession, form: str = "parquet") -> None:
        self.folder, self.spark, self.arrived = folder, spark, 0
        self.file = folder / "job.yaml"
        job = {
            "job": "read",
            "source": {
                "type": "files",
                "paths": [f"{folder}/in/{{dataset}}/*.parquet"],
                "format": "parquet",
            },
            "sink": {"format": form, "partition_by": {"column": "at", "granularity": "day"}},
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 2},
        }
        self.file.write_text(json.dumps(job))

    def run(self, **more: list[Any]) -> int:
        """Add three records to each dataset, run the job, and return its epoch."""
        self.arrived += 1
        days = pa.array([datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 2)], pa.timestamp("us", "UTC"))
        for name in NAMES:
            (self.folder / "in" / name).mkdir(parents=True, exist_ok=True)
            path = self.folder / "in" / name / f"{self.arrived}.parquet"
            numbers = [self.arrived, self.arrived + 10, self.arrived + 20]
            pq.write_table(pa.table({"name": [name] * 3, "n": numbers, "at": days, **more}), path)
            os.utime(path, (self.arrived, self.arrived))
        assert Job.from_file(self.file, session=self.spark).run().succeeded
        return distcommit.read(self.file).epoch

    def load(self, **options: Any) -> DataFrame:
        return self.spark.read.format("distcommit").options(**options).load(str(self.file))

    def rows(self, **options: Any) -> list[dict[str, Any]]:
        """Return the rows that Spark's tasks would read, read in this process."""
        source = DistcommitDataSource({"path": str(self.file)} | {name: str(value) for name, value in options.items()})
        reader = source.reader(source.schema())
        batches: Any = (batch for partition in reader.partitions() for batch in reader.read(partition))
        return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    distcommit.register_data_source(spark)


@pytest.mark.parametrize("form", ["parquet", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_reads_one_dataset_or_all_at_the_newest_and_at_an_older_snapshot(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    place = Place(tmp_path, spark, form)
    first = place.run()
    place.run(later=[7, 8, 9])
    orders = place.load(dataset="orders")
    assert sorted(row["n"] for row in orders.collect()) == [1, 2, 11, 12, 21, 22]
    assert sorted(row["later"] or 0 for row in orders.collect()) == [0, 0, 0, 7, 8, 9]
    assert {row["name"] for row in place.load().collect()} == set(NAMES)
    both = place.load(datasets=json.dumps(NAMES)).where("n > 20").groupBy("name").count().collect()
    assert {row["name"]: row["count"] for row in both} == dict.fromkeys(NAMES, 2)
    before = place.load(dataset="orders", as_of=first)
    assert "later" not in before.columns
    assert before.count() == 3
    assert place.load(dataset="orders", tasks=1).rdd.getNumPartitions() == 1
    same = distcommit.read(place.file).to_arrow("orders")
    assert orders.count() == same.num_rows
    assert {field.name for field in orders.schema} == set(same.schema.names)


SECOND_OF_MARCH = json.dumps([["at", ">=", "2026-03-02T00:00:00Z"]])


@pytest.mark.parametrize("form", ["parquet", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_unneeded_columns_and_records_are_not_read(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """Unneeded data is made unreadable: pages of other columns are overwritten, then files of other days are
    deleted."""
    place = Place(tmp_path, spark, form)
    place.run()
    place.run(later=[7, 8, 9])
    (shown,) = re.findall(r"```python\n(few = .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    values: dict[str, Any] = {"spark": spark}
    exec(shown.replace("job.yaml", str(place.file)), values)
    few = values["few"]
    everything = place.load(tasks=2)
    expected = sorted((row["name"], row["n"]) for row in everything.collect() if row["at"].day > 1)
    assert len(expected) == 8
    assert few.columns == ["name", "n"]
    assert sorted(map(tuple, few.collect())) == expected
    in_list = place.rows(dataset="orders", filters='[["n", "in", [2, 12, 22]], ["later", "<", 9]]', columns='["n"]')
    assert sorted(in_list, key=lambda row: row["n"]) == [{"n": 2}, {"n": 12}]
    assert place.rows(filters='[["n", ">", 1000]]') == []
    if form != "parquet":
        return
    for path in (tmp_path / "output").glob("*/*/*.parquet"):
        if "2026-03-02" in str(path):
            spoil(path, "later")
        else:
            path.unlink()
    assert few.where("n = 21").count() == 2
    with pytest.raises(PySparkException, match="the snapshot was deleted while it was read"):
        everything.collect()
    with pytest.raises(CorruptError, match="can't be read"):
        place.rows(filters=SECOND_OF_MARCH)


def spoil(path: Path, column: str) -> None:
    """Overwrite the pages of one column."""
    metadata = pq.read_metadata(path)
    data = bytearray(path.read_bytes())
    for group in range(metadata.num_row_groups):
        for chunk in map(metadata.row_group(group).column, range(metadata.num_columns)):
            if chunk.path_in_schema == column:
                first = chunk.dictionary_page_offset or chunk.data_page_offset
                data[first : first + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(data)


@pytest.mark.slow
def test_frame_stays_at_its_snapshot_and_fails_once_that_is_deleted(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(tmp_path, spark)
    place.run()
    frame = place.load()
    place.run()
    assert frame.count() == 6
    assert place.load().count() == 12
    for path in (tmp_path / "output").glob("*/*/*.parquet"):
        path.unlink()
    with pytest.raises(PySparkException, match="the snapshot was deleted while it was read"):
        frame.count()


def test_unreadable_requests_are_refused_when_loaded(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(tmp_path, spark)
    place.run()
    store = Job.from_file(place.file).open_store(create=False)
    for options, reason in (
        ({"dataset": "nobody"}, "has nothing of this dataset"),
        ({"as_of": 99}, "no run of that epoch"),
        ({"as_of": "yesterday"}, "as_of does not name a snapshot"),
        ({"branch": "other"}, "no files of that branch"),
        ({"as-of": 1}, "does not have these options"),
        ({"datasets": "orders"}, "`datasets` is not a list of datasets"),
        ({"tasks": 0}, "not a number of tasks"),
        ({"columns": "n"}, "`columns` is not a list of different columns"),
        ({"columns": '["n", "m"]'}, "no columns of these names"),
        ({"filters": "n > 1"}, "not a list of filters"),
        ({"filters": '[["m", ">", 1]]'}, "no column of that name"),
        ({"filters": '[["at", ">", "soon"]]'}, "not of its column's type"),
    ):
        with pytest.raises(DistcommitError, match=reason):
            place.rows(**options)
    with pytest.raises(PySparkException, match="has nothing of this dataset"):
        place.load(dataset="nobody")
    place.run()
    expire_older_snapshots(store, distcommit.read(place.file).epoch, 2)
    with pytest.raises(PySparkException, match="no longer kept"):
        place.load(as_of=1)


@pytest.mark.slow
def test_reader_in_mid_commit_sees_none_or_all_of_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    """A run is frozen with some of its files published, then killed; the next run finishes its commit."""
    topics = {f"t{number:02d}": 2 for number in range(8)}
    with kafka_job(tmp_path, topics, commit={"min_interval_ms": 0}) as job:
        job.produce(2, days=2)
        assert Job.from_file(job.path, session=spark).run().succeeded
        counts = dict.fromkeys(topics, 4)

        def read() -> dict[str, int]:
            load = spark.read.format("distcommit").load(str(job.path))
            topic = load.selectExpr("get_json_object(cast(value AS string), '$.topic') AS topic")
            return {row["topic"]: row["count"] for row in topic.groupBy("topic").count().collect()}

        assert read() == counts
        before = set(tmp_path.glob("output/t*/*/*.parquet"))
        job.produce(3, days=2)
        with RunProcess(["run", str(job.path)], tmp_path / "run.out", tmp_path / "run.err") as run:
            while not run.has_ended and set(tmp_path.glob("output/t*/*/*.parquet")) == before:
                time.sleep(0.001)
            run.freeze()
            assert not run.has_ended
            assert read() == counts
            run.kill()
        assert read() == counts
        assert Job.from_file(job.path, session=spark).run().succeeded
        assert read() == dict.fromkeys(topics, 10)
        assert job.audit().exact
