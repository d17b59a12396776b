"""Keys of the commit infos of built-in sinks: logs store them, so that another key needs a new `infos_version`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.kafka.sink import KafkaSink
from distcommit.sinks.mariadb.sink import MariadbSink
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.delta import delta_target
from tests.unit.sinks.iceberg import iceberg_target
from tests.unit.sinks.kafka import test_kafka_messages
from tests.unit.sinks.sqlite import test_sqlite

ROWS = delta_target.ids(1)


def info_of(target: Any, *rows: Any) -> dict[str, Any]:
    (info,) = target.prepare(target.sink(), "t", 1, *rows).infos
    assert isinstance(info, dict)
    return info


def test_info_of_a_delta_table_has_these_keys(tmp_path: Path) -> None:
    info = info_of(delta_target.Target(tmp_path), ROWS)
    assert sorted(info) == ["covered", "files", "id", "partition_by", "partition_types", "table"]
    assert sorted(info["files"][0]) == ["bytes", "made_ms", "partition", "path", "rows", "schema"]


def test_info_of_an_iceberg_table_has_these_keys(tmp_path: Path) -> None:
    info = info_of(iceberg_target.Target(tmp_path), ROWS)
    assert sorted(info) == ["covered", "files", "table", "uuid"]
    assert sorted(info["files"][0]) == [
        *("bytes", "partition", "path", "rows", "schema", "sort_order", "spec", "splits", "statistics")
    ]


def test_info_of_staged_rows_has_these_keys(tmp_path: Path) -> None:
    info = info_of(test_sqlite.Target(tmp_path))
    assert sorted(info) == ["covered", "files", "ledger", "rows"]
    assert [type(value) for value in info["files"][0]] == [str, int], "path and checksum"


def test_info_of_messages_has_these_keys(tmp_path: Path) -> None:
    (info,) = test_kafka_messages.Staged(tmp_path).requests[0].infos
    assert sorted(info) == ["covered", "files", "ledger"]


def test_covered_records_of_an_info_have_these_keys(tmp_path: Path) -> None:
    assert sorted(info_of(delta_target.Target(tmp_path), ROWS)["covered"]) == [
        *("branches", "duplicates", "filtered", "holes", "incarnation", "makes_several", "offsets", "rows")
    ]


def test_infos_of_built_in_sinks_have_version_1() -> None:
    sinks = (DeltaSink, IcebergSink, KafkaSink, MariadbSink, PostgresqlSink, SqliteSink)
    assert {kind.infos_version for kind in sinks} == {1}
