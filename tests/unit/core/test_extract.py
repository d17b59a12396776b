"""Extract properties: those that a source declares for a dataset, and those of a single work unit."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.extract_description import Extract, TableType, extract_of, with_extract
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.files.settings import FilesSource
from distcommit.sources.kafka.settings import KafkaSource
from distcommit.sources.rest.settings import RestSource
from distcommit.sources.spark.settings import SparkSource
from tests.unit.sources.sql.sql_tables import database, planned, source

UNIT = WorkUnit("1", "a", Watermark({"": 0}), Watermark({"": 1}), 1, {"max_bytes": "7"})
OF_SOURCE = Extract("shop", "a", TableType.APPEND_ONLY)


def test_work_unit_property_takes_precedence_over_that_of_its_source() -> None:
    own = Extract("shop", "a", TableType.SNAPSHOT_APPEND, ("id", "line"), ("updated_at",))
    assert extract_of(UNIT, None) is None
    assert extract_of(UNIT, OF_SOURCE) == OF_SOURCE
    assert extract_of(with_extract(UNIT, own), OF_SOURCE) == own
    assert with_extract(UNIT, own).properties["max_bytes"] == "7"


def test_empty_property_is_reported() -> None:
    with pytest.raises(SourceError, match=r"property=extract.*expected an Extract"):
        extract_of(replace(UNIT, properties={"extract": '{"table": 1}'}), OF_SOURCE)


def test_kafka_extract_names_the_topic_whatever_the_dataset_is() -> None:
    kafka = KafkaSource.model_validate({"type": "kafka", "brokers": "b:1", "topics": ["clicks"]})
    columns = ("kafka_partition", "kafka_offset")
    expected = Extract("kafka", "clicks", TableType.APPEND_ONLY, columns, ("kafka_offset",))
    assert kafka.extract_of("clicks") == kafka.extract_of("clicks@3") == expected


def test_file_and_list_extracts_name_the_column_that_numbers_records() -> None:
    files = FilesSource.model_validate({"type": "files", "paths": ["/in/{dataset}/*.csv"], "format": "csv"})
    columns = ("_partition", "_offset")
    assert files.extract_of("a") == Extract("files", "a", TableType.APPEND_ONLY, columns, ("_offset",))
    settings = {
        "type": "rest",
        "url": "https://host/{dataset}",
        "datasets": ["a", "b"],
        "watermark": {"field": "at", "type": "time", "since": "since", "lookback": 0},
        "paging": {"type": "none"},
        "overrides": {"b": {"watermark": {"field": "meta.id", "type": "integer", "since": "after", "lookback": 0}}},
    }
    remainder = RestSource.model_validate(settings)
    assert remainder.extract_of("a") == Extract("rest", "a", TableType.APPEND_ONLY, columns, ("at",))
    assert remainder.extract_of("b").delta_fields == ("meta.id",)


def test_spark_extract_names_the_reader() -> None:
    settings = {"type": "spark", "format": "orc", "datasets": {"a": {}}}
    snapshots = SparkSource.model_validate(settings).extract_of("a")
    assert snapshots == Extract("orc", "a", TableType.SNAPSHOT_ONLY)
    ranges = SparkSource.model_validate({**settings, "watermark": "n", "lookback": 0}).extract_of("a")
    assert ranges == Extract("orc", "a", TableType.APPEND_ONLY, (), ("n",))


def test_table_extract_has_the_column_of_the_settings_and_the_primary_key_of_work_units(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with database(file) as connection:
        connection.execute("CREATE TABLE t (id INTEGER NOT NULL, line INTEGER, at INTEGER, PRIMARY KEY (id, line))")
        connection.execute("CREATE TABLE without (id INTEGER NOT NULL)")
        connection.executemany("INSERT INTO t VALUES (?, 1, ?)", [(1, 1), (2, 2), (3, 3)])
        connection.executemany("INSERT INTO without VALUES (?)", [(1,), (2,)])
    settings = {"tables": ["t", "without"], "table_type": "snapshot_append", "records_per_work_unit": 1}
    sql = source(file, **settings, overrides={"t": {"watermark": "at"}})
    expected = Extract(str(file), "t", TableType.SNAPSHOT_APPEND, (), ("at",))
    assert sql.extract_of("t") == expected
    plans = {plan.dataset_urn: plan for plan in planned(sql) if isinstance(plan, DatasetPlan)}
    units = plans["t"].work_units
    assert len(units) == 2
    assert {extract_of(unit, sql.extract_of("t")) for unit in units} == {replace(expected, keys=("id", "line"))}
    (unit,) = plans["without"].work_units
    assert "extract" not in unit.properties
    assert sql.model_copy(update={"schema_name": "sales"}).extract_of("t").namespace == "sales"
