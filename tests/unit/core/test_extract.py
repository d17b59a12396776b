"""Extract properties: those that a source declares for a dataset, and those of a single work unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from distcommit.app.job_file.built_in_types import validated
from distcommit.app.job_file.job_config import JobConfig
from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source_table import Extract, TableType, extract_of, with_extract
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.sources.files.source import FilesSource
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.rest.source import RestSource
from distcommit.sources.spark.source import SparkSource
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


KAFKA = {"type": "kafka", "brokers": "b:1", "topics": ["a"]}
FILES = {"type": "files", "paths": ["/in/{dataset}/*.csv"], "format": "csv"}
SPARK = {"type": "spark", "format": "orc", "datasets": {"a": {}}}
SQL = {"type": "sql", "url": "sqlite:////shop.db", "tables": ["a"], "watermark": "n", "lookback": 0}
REST = {
    "type": "rest",
    "url": "https://host/{dataset}",
    "datasets": ["a"],
    "watermark": {"field": "at", "type": "time", "since": "since", "lookback": 0},
    "paging": {"type": "none"},
}
BATCHES = {"type": "micro_batch", "dataset_column": "d"}
CUSTOM = {
    "type": "python",
    "class": "tests.integration.parts.named_source:NamedSource",
    "options": {"names": ["a"]},
}


@pytest.mark.parametrize(
    "section", [KAFKA, FILES, SPARK, SQL, REST, BATCHES, CUSTOM], ids=lambda section: section["type"]
)
def test_declared_keys_and_delta_fields_replace_those_of_every_source(section: dict[str, Any]) -> None:
    declared = {"keys": ["id", "line"], "delta_fields": ["changed"]}
    own = validated("source", section).extract_of("a")
    changed = validated("source", {**section, "extract": declared}).extract_of("a")
    assert (changed.keys, changed.delta_fields) == (("id", "line"), ("changed",))
    assert own is None or replace(changed, keys=own.keys, delta_fields=own.delta_fields) == own


def test_work_units_of_tables_have_the_declared_keys_unless_the_table_has_own_ones(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with database(file) as connection:
        for table in ("t", "u"):
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT, line INTEGER)")
            connection.execute(f"INSERT INTO {table} VALUES (1, 'a', 1)")
    overrides = {"u": {"keys": ["id", "line"]}}
    sql = source(file, tables=["t", "u"], extract={"keys": ["name"]}, overrides=overrides)
    plans = [plan for plan in planned(sql) if isinstance(plan, DatasetPlan)]
    keys = {plan.dataset_urn: extract_of(plan.work_units[0], None) for plan in plans}
    assert {urn: extract and extract.keys for urn, extract in keys.items()} == {"t": ("name",), "u": ("id", "line")}


def test_flow_with_another_source_is_describer_that_of_the_job_file() -> None:
    flow = TaskFlow.straight(KafkaSource.model_validate(KAFKA), FileSink())
    twice = flow.with_source(FilesSource.model_validate(FILES)).with_source(SparkSource.model_validate(SPARK))
    assert twice.describer is flow.source


def sinks_of(**flow: Any) -> dict[str, Any]:
    folders = {name: f"/{name}" for name in ("store", "staging", "output")}
    return dict(JobConfig.model_validate({"job": "j", "paths": folders, **flow}).sink_sections())


def test_upsert_sinks_without_keys_use_those_of_the_extract() -> None:
    kafka = {**KAFKA, "extract": {"keys": ["id"]}}
    upsert = {"type": "sqlite", "path": "/a", "mode": "upsert"}
    assert sinks_of(source=kafka, sink=upsert)["sink"].keys == ("id",)
    assert sinks_of(source=kafka, sink={**upsert, "keys": ["n"]})["sink"].keys == ("n",)
    assert sinks_of(source=kafka, sink={**upsert, "mode": "append"})["sink"].keys == ()
    branches = {"a": {"sink": upsert}, "b": {"sink": {**upsert, "table": "b", "keys": ["n"]}}, "c": {}}
    sinks = sinks_of(source=kafka, fork={"type": "all", "branches": branches})
    assert [sinks[f"fork.branches.{name}.sink"].keys for name in "ab"] == [("id",), ("n",)]
    with pytest.raises(ValueError, match=r"must be set with mode: upsert; set it, or source\.extract\.keys"):
        sinks_of(source=KAFKA, sink=upsert)
