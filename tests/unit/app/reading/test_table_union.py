"""Files of one dataset with older and newer schemas are read as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from distcommit.app.reading.spark_data_source import DistcommitDataSource
from distcommit.app.reading.table_union import joined_schema
from distcommit.core.errors import ConfigurationError
from tests.unit.app.reading.test_snapshot_reader import Place


def never_null(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


OLD = pa.struct([never_null("a", pa.int32()), never_null("b", pa.string())])
NEW = pa.struct([("a", pa.int64()), ("c", pa.string())])
CASES: dict[str, tuple[pa.DataType, Any, pa.DataType, Any, list[Any]]] = {
    "struct": (OLD, {"a": 1, "b": "x"}, NEW, {"a": None, "c": "z"},
        [{"a": 1, "b": "x", "c": None}, {"a": None, "b": None, "c": "z"}]),
    "gone": (OLD, {"a": 1, "b": "x"}, pa.struct([("a", pa.int32())]), {"a": 2},
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    "within": (pa.struct([never_null("s", OLD)]), {"s": {"a": 1, "b": "x"}}, pa.struct([("t", NEW)]), {"t": None},
        [{"s": {"a": 1, "b": "x"}, "t": None}, {"s": None, "t": None}]),
    "list": (pa.list_(never_null("item", OLD)), [{"a": 1, "b": "x"}], pa.list_(NEW), [None, {"a": 2, "c": None}],
        [[{"a": 1, "b": "x", "c": None}], [None, {"a": 2, "b": None, "c": None}]]),
    "map": (pa.map_(pa.string(), never_null("value", OLD)), [("k", {"a": 1, "b": "x"})], pa.map_(pa.string(), NEW),
        [("k", None)], [[("k", {"a": 1, "b": "x", "c": None})], [("k", None)]]),
}  # fmt: skip


class TwoFiles:
    """A job with two published files that tests overwrite."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, Place(folder)
        for end in (3, 5):
            self.place.run(end, ["d0"])
        job = {"job": "job", "source": {"type": "kafka", "brokers": "b:1", "topics": ["t"]}, "commit": {"buckets": 2}}
        paths = {
            "store": self.place.roots.store,
            "staging": self.place.roots.staging,
            "output": self.place.roots.output,
        }
        (folder / "job.yaml").write_text(yaml.safe_dump({**job, "paths": paths}))

    def write(self, *tables: pa.Table) -> None:
        files = self.place.read("d0").files()
        assert len(files) == len(tables)
        for path, table in zip(files, tables, strict=True):
            pq.write_table(table, path)


def table_of(number: int, kind: pa.DataType, value: Any, *, may_be_null: bool) -> pa.Table:
    schema = pa.schema([pa.field("n", pa.int8(), may_be_null), pa.field("v", kind, may_be_null)])
    return pa.Table.from_arrays([pa.array([number], pa.int8()), pa.array([value], kind)], schema=schema)


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> TwoFiles:
    return TwoFiles(tmp_path_factory.mktemp("job"))


@pytest.mark.parametrize("newer_first", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_required_field_of_older_files_is_null_in_newer_files_without_it(
    two_files: TwoFiles, case: str, newer_first: bool
) -> None:
    duckdb = pytest.importorskip("duckdb")
    old, before, new, after, expected = CASES[case]
    tables = [table_of(1, old, before, may_be_null=False), table_of(2, new, after, may_be_null=True)]
    two_files.write(*(tables[::-1] if newer_first else tables))
    cut = two_files.place.read("d0")
    for table in (cut.to_arrow(), cut.to_pyarrow_dataset().to_table()):
        assert table.sort_by("n")["v"].to_pylist() == expected
    assert cut.to_duckdb("d0", duckdb.connect()).aggregate("sum(n)").fetchall() == [(3,)]
    source = DistcommitDataSource({"path": str(two_files.folder / "job.yaml")})
    reader = source.reader(source.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert pa.Table.from_batches(batches).sort_by("n")["v"].to_pylist() == expected


def test_files_with_one_schema_keep_it(two_files: TwoFiles) -> None:
    table = table_of(1, OLD, {"a": 1, "b": "x"}, may_be_null=False)
    two_files.write(table, table)
    cut = two_files.place.read("d0")
    assert cut.to_arrow().schema == cut.to_pyarrow_dataset().schema == table.schema
    assert joined_schema([]) == pa.schema([])


def test_incompatible_types_of_a_column_are_refused_with_its_name(two_files: TwoFiles) -> None:
    two_files.write(
        table_of(1, pa.int32(), 1, may_be_null=True), table_of(2, pa.list_(pa.string()), ["x"], may_be_null=True)
    )
    cut = two_files.place.read("d0")
    for read in (cut.to_arrow, cut.to_pyarrow_dataset):
        with pytest.raises(ConfigurationError, match=r"can't be read as one table.*Field v .*the old type"):
            read()
