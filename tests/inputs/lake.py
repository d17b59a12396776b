"""Inputs of sinks whose records go to partitions and to tables of a lake: values, column names and altered tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import FailedForGood
from distcommit.core.interfaces.sink import SinkSettings
from distcommit.sinks.console.sink import ConsoleSink
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition, split
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.kafka.sink import KafkaSink
from distcommit.sinks.table_formats.partition_value_checker import NO_VALUE
from tests.inputs.case import Case
from tests.unit.sinks.delta.delta_target import Target, ids

_FILES = FileSink.model_validate({"partition_by": [{"field": "k"}]})
_KAFKA = KafkaSink.model_validate({"type": "kafka", "brokers": "b:1", "topic": "t", "ledger": "l", "key": ""})
_CATALOG = {"type": "sql", "uri": "sqlite:////catalog.db", "warehouse": "/tables"}
_ICEBERG = IcebergSink.model_validate({"type": "iceberg", "catalog": _CATALOG, "namespace": "n"})
_DELTA = DeltaSink.model_validate({"type": "delta", "location": "/tables", "partition_by": ["k"]})


def _folder(value: str | None) -> Callable[[Path], str]:
    """Return the folder of a record with that value, or `rejected`."""

    def run(folder: Path) -> str:
        batch = pa.record_batch({"k": pa.array([value], pa.string())})
        check = _FILES.rejection_check
        if check is None or not check.check(batch)[0].as_py():
            return "rejected: its value can not name a folder"
        return next(name for name, _ in split(batch, [FieldPartition(field="k")]))

    return run


def _delta_partition(value: str | None) -> Callable[[Path], str]:
    """Return the value in a Delta table of a record that was partitioned by it, or `rejected`."""

    def run(folder: Path) -> str:
        batch = pa.record_batch({"k": pa.array([value], pa.string()), "id": [1]})
        check = _DELTA.rejection_check
        if check is None or not check.check(batch)[0].as_py():
            return "rejected: Delta would read it as null"
        target = Target(folder)
        sink = target.sink(partition_by=["k"])
        target.commit(sink, target.prepare(sink, "t", 1, pa.table(batch.to_pydict(), batch.schema)))
        return repr(target.table("t").to_pyarrow_table()["k"][0].as_py())

    return run


def _names(sink: SinkSettings, *names: str, struct: str = "") -> Callable[[Path], str]:
    """Return `stored`, or why the sink rejects such columns or struct fields."""

    def run(folder: Path) -> str:
        fields = [pa.field(name, pa.string()) for name in names]
        try:
            sink.check_schema(pa.schema([(struct, pa.list_(pa.struct(fields)))] if struct else fields))
        except ConfigurationError as error:
            return f"rejected: {error.found}"
        return "stored"

    return run


def _shown(sink: SinkSettings) -> str:
    return f"{sink.type} of format {sink.format}" if hasattr(sink, "format") else sink.type


def _delta_after(change: str) -> Callable[[Path], str]:
    """Return the shortened outcome of committing files after a change of their table."""

    def run(folder: Path) -> str:
        target = Target(folder)
        sink = target.sink()
        if change != "dropped before its first commit":
            target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
        if change == "dropped between two runs":
            shutil.rmtree(target.location / "t")
        bases = (1,) if "first" not in change else (0,)
        request = target.prepare(sink, "t", 2, ids(2), bases=bases)
        if change.startswith("dropped before"):
            shutil.rmtree(target.location / "t")
        (outcome,) = target.commit(sink, request)
        if isinstance(outcome, FailedForGood):
            return f"rejected: {outcome.reason.partition('To do: ')[2].partition(':')[0]}"
        return f"rows {target.rows('t')}"

    return run


_SAME = "rejected: the same name as 'ID', but for its case"
_LAKE: list[SinkSettings] = [
    *(FileSink.model_validate({"format": form}) for form in get_args(FileFormat)),
    ConsoleSink(type="console"),
    _ICEBERG,
    _DELTA,
    _KAFKA.model_copy(update={"format": "json"}),
]
_NO_FOLDER = "rejected: its value can not name a folder"
_ABANDON, _RESTART = (f"rejected: release the dataset with {way}" for way in ("abandon", "restart"))
_DDL = "tests/unit/sinks/iceberg/test_iceberg_altered.py::"
_REFUSED = f"{_DDL}test_files_whose_values_the_altered_table_would_hide_are_rejected"
_SHOWN = f"{_DDL}test_files_whose_values_the_altered_table_still_shows_are_committed"

CASES: list[Case] = [
    *(
        Case("partition-folder", given, right, run=_folder(value))
        for given, value, right in (
            ("text DE", "DE", "k=DE"),
            ("null", None, f"k={NO_VALUE}"),
            ("an empty text, as Hive has it; the file keeps it", "", f"k={NO_VALUE}"),
            ("text a/b", "a/b", "k=a%2Fb"),
            ("text ..", "..", "k=%2E%2E"),
            ("text %41", "%41", "k=%2541"),
            ("text with a line break", "a\nb", "k=a%0Ab"),
            (f"text {NO_VALUE}", NO_VALUE, _NO_FOLDER),
            ("text of 300 bytes", "x" * 300, _NO_FOLDER),
            ("text of 100 slashes, which take 300 bytes as escapes", "/" * 100, _NO_FOLDER),
        )
    ),
    *(
        Case("delta-partition", given, right, run=_delta_partition(value))
        for given, value, right in (
            ("null", None, "None"),
            ("text a/b=c %", "a/b=c %", "'a/b=c %'"),
            ("text of 300 bytes", "x" * 300, repr("x" * 300)),
            ("an empty text", "", "rejected: Delta would read it as null"),
            (f"text {NO_VALUE}", NO_VALUE, "rejected: Delta would read it as null"),
        )
    ),
    *(
        Case("delta-columns", f"columns {', '.join(map(repr, names))}", right, run=_names(_DELTA, *names))
        for names, right in (
            (("k", "id"), "stored"),
            (("k", "id", "id"), "rejected: the same name as 'id'"),
            (("k", ""), "rejected: an empty name"),
            (("k", "a b"), "rejected: the character ' '"),
            (("k", "a=b"), "rejected: the character '='"),
            (("k", "größe"), "stored"),
        )
    ),
    *(
        Case("column-case", f"{given} in {_shown(sink)}", _SAME, run=_names(sink, "ID", "id", struct=struct))
        for sink in _LAKE
        for given, struct in (("columns ID and id", ""), ("a list of structs of ID and id", "lines"))
    ),
    Case(
        "column-case",
        "columns ID and id beside the value of a message",
        "stored",
        run=_names(_KAFKA, "ID", "id", "value"),
    ),
    *(
        Case("delta-table", f"a table that was {change}", right, run=_delta_after(change))
        for change, right in (
            ("left alone", "rows [1, 2]"),
            ("dropped before its first commit", _ABANDON),
            ("dropped before the commit", _RESTART),
            ("dropped between two runs", _RESTART),
        )
    ),
    Case("iceberg-table", "a column dropped and added again after the write", "rejected: abandon", test=_REFUSED),
    Case("iceberg-table", "a column that requires a value after the write", "rejected: abandon", test=_REFUSED),
    Case("iceberg-table", "a required column added after the write", "rejected: abandon", test=_REFUSED),
    Case("iceberg-table", "a column renamed after the write", "its values, under the new name", test=_SHOWN),
    Case("iceberg-table", "a column widened to long after the write", "its values, as long", test=_SHOWN),
    Case(
        "iceberg-partition",
        f"text {NO_VALUE}, text of 300 bytes, an empty text",
        "each as it is",
        test="tests/unit/sinks/files/test_partition_values.py::"
        "test_iceberg_keeps_partition_values_that_can_not_be_folder_names",
    ),
]
