"""Layout of records in files: folders by fields, sort order, and column encodings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConfigurationError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.table_formats.partition_value_checker import NO_VALUE
from tests.unit.sinks.files.attempts import DAY_MS, FORMATS, LEAST, RUN_NUMBERS, URN, files_in

FS = LocalFileSystem()
COUNTRIES = st.none() | st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["DE", "a/b", "..", "x=y"])
RECORDS = st.lists(st.tuples(COUNTRIES, st.integers(-3, 3), st.integers(0, 2 * DAY_MS)), max_size=30)


def batch_of(rows: Sequence[tuple[str | None, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    kinds = [pa.string(), pa.int64(), pa.timestamp("ms", "UTC")]
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["country", "n", "at"])


def written(root: Path, sink: FileSink, *batches: pa.RecordBatch, **bounds: Any) -> dict[str, pa.Table]:
    """Return the table of each written file by its path below the dataset's folder."""
    files = files_in(root, sink, provenance=None, **bounds)
    for batch in batches:
        files.write(batch)
    start = f"{folder_of(URN)}/"
    return {
        output.final_path.removeprefix(start): read_records(FS, f"{root}/{output.staged_path}")
        for output in files.prepare_commit().files
    }


def sink_of(**tree: Any) -> FileSink:
    return FileSink.model_validate(tree)


# -- folders


@pytest.mark.thorough
@given(batches=st.lists(RECORDS, max_size=3), bounds=st.tuples(st.integers(1, 9000), st.integers(1, 3)))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_record_is_once_in_the_folder_of_its_values(
    tmp_path: Path, batches: list[list[tuple[str | None, int, int]]], bounds: tuple[int, int]
) -> None:
    root = tmp_path / str(next(RUN_NUMBERS))
    sink = sink_of(partition_by=[{"field": "country"}, {"field": "n"}, {"column": "at", "granularity": "day"}])
    tables = written(root, sink, *map(batch_of, batches), row_group_bytes=bounds[0], max_open_files=bounds[1])
    rows = [(path, row) for path, table in tables.items() for row in table.to_pylist()]
    given_rows = Counter((country, n) for batch in batches for country, n, _ in batch)
    assert Counter((row["country"], row["n"]) for _, row in rows) == given_rows
    for path, row in rows:
        country, n, day, _ = path.split("/")
        assert unquote(country) == f"country={row['country'] or NO_VALUE}"
        assert n == f"n={row['n']}"
        assert day == row["at"].date().isoformat()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("DE", "c=DE"),
        ("Österreich", "c=Österreich"),
        ("a/../b", "c=a%2F..%2Fb"),
        ("..", "c=%2E%2E"),
        ("a b ", "c=a b%20"),
        ("50%", "c=50%25"),
        ("a=b:c", "c=a%3Db%3Ac"),
        ("\0\n\\", "c=%00%0A%5C"),
        ("", f"c={NO_VALUE}"),
        (None, f"c={NO_VALUE}"),
    ],
)
def test_hostile_value_is_one_folder(tmp_path: Path, value: str | None, name: str) -> None:
    rows = pa.record_batch({"c": pa.array([value], pa.string())})
    (path,) = written(tmp_path, sink_of(partition_by={"field": "c"}), rows)
    assert path.rpartition("/")[0] == name


def test_field_with_a_leading_dot_does_not_create_hidden_folders(tmp_path: Path) -> None:
    (path,) = written(tmp_path, sink_of(partition_by={"field": ".c"}), pa.record_batch({".c": [1]}))
    assert path.startswith("%2Ec=1/")


@pytest.mark.parametrize(
    ("values", "folders"),
    [
        (pa.array([1, None], pa.uint8()), {"c=1", f"c={NO_VALUE}"}),
        (pa.array([True, False]), {"c=true", "c=false"}),
        (pa.array([0, 1], pa.date32()), {"c=1970-01-01", "c=1970-01-02"}),
        (pa.array(["x", "y", "x"]).dictionary_encode(), {"c=x", "c=y"}),
    ],
)
def test_supported_types_become_folders(tmp_path: Path, values: pa.Array, folders: set[str]) -> None:
    tables = written(tmp_path, sink_of(partition_by={"field": "c"}), pa.record_batch({"c": values}))
    assert {path.rpartition("/")[0] for path in tables} == folders


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary(), pa.timestamp("ms"), pa.list_(pa.string())])
def test_types_without_folder_names_are_rejected_before_a_record_is_read(kind: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match="column=c"):
        sink_of(partition_by=[{"field": "c"}]).check_schema(pa.schema([("c", kind)]))


def test_other_readers_read_folders_as_hive_partitions(tmp_path: Path) -> None:
    rows = batch_of([("DE", 1, 0), ("a b/c", 2, 0), (None, 3, 0)])
    files = files_in(tmp_path, sink_of(partition_by={"field": "country"}), provenance=None)
    files.write(rows.rename_columns(["country", "n", "at"]))
    for output in files.prepare_commit().files:
        target = tmp_path / "output" / output.final_path
        target.parent.mkdir(parents=True)
        (tmp_path / output.staged_path).rename(target)
    read = f"SELECT country, n FROM read_parquet('{tmp_path}/output/**/*.parquet', hive_partitioning = true) ORDER BY n"
    assert duckdb.connect().execute(read).fetchall() == [("DE", 1), ("a b/c", 2), (None, 3)]


def test_more_folders_than_allowed_fail_the_attempt(tmp_path: Path) -> None:
    sink = sink_of(partition_by={"field": "n"}, max_partitions=3)
    files = files_in(tmp_path, sink, provenance=None)
    files.write(batch_of([("", n % 3, 0) for n in range(9)]))
    with pytest.raises(ConfigurationError, match=r"at most 3; found one more, n=3.*max_partitions"):
        files.write(batch_of([("", 3, 0)]))
    files.abort()


def test_time_folders_are_not_limited(tmp_path: Path) -> None:
    sink = sink_of(partition_by={"column": "at"}, max_partitions=1)
    assert len(written(tmp_path, sink, batch_of([("", 0, 0), ("", 0, DAY_MS)]))) == 2


def test_value_too_long_for_a_folder_name_is_rejected(tmp_path: Path) -> None:
    files = files_in(tmp_path, sink_of(partition_by={"field": "country"}), provenance=None)
    with pytest.raises(ConfigurationError, match=r"too long.*row checker"):
        files.write(batch_of([("ü" * 120, 0, 0)]))


@pytest.mark.parametrize("wrong", [[], "country", [{"field": ""}], {"field": "a", "column": "b"}, [{"fields": "a"}], 5])
def test_invalid_partition_settings_are_rejected(wrong: object) -> None:
    with pytest.raises(ValidationError, match="partition_by"):
        sink_of(partition_by=wrong)


# -- order


@pytest.mark.parametrize("form", FORMATS)
def test_each_file_is_sorted_as_a_whole(tmp_path: Path, form: FileFormat) -> None:
    keys = [{"column": "country"}, {"column": "n", "order": "descending"}]
    sink = sink_of(format=form, compression=LEAST.get(form, "none"), sort_by=keys, partition_by={"column": "at"})
    rows = [(country, n, day * DAY_MS) for n in range(7) for country in ("b", None, "a") for day in (0, 1)]
    tables = written(tmp_path, sink, batch_of(rows[:20]), batch_of(rows[20:]), row_group_bytes=1)
    assert len(tables) == 2
    for table in tables.values():
        order = [(row["country"], row["n"]) for row in table.to_pylist()]
        assert order == [(country, n) for country in ("a", "b", None) for n in range(6, -1, -1)]


def test_parquet_records_its_sort_order_in_each_row_group(tmp_path: Path) -> None:
    sink = sink_of(sort_by=[{"column": "n", "order": "descending"}, {"column": "country"}])
    files = files_in(tmp_path, sink, provenance=None)
    files.write(batch_of([("a", 1, 0), ("b", 2, 0)]))
    (output,) = files.prepare_commit().files
    metadata = pq.read_metadata(tmp_path / output.staged_path).row_group(0).sorting_columns
    assert [(key.column_index, key.descending, key.nulls_first) for key in metadata] == [
        (1, True, False),
        (0, False, False),
    ]


def test_sorted_file_size_is_bounded_by_memory(tmp_path: Path) -> None:
    sink = sink_of(sort_by=[{"column": "n"}], compression="none")
    batches = [batch_of([("x" * 1000, -n, 0) for n in range(start, start + 50)]) for start in range(0, 500, 50)]
    tables = written(tmp_path, sink, *batches, max_waiting_bytes=100_000)
    assert len(tables) >= 4
    for table in tables.values():
        assert table.column("n").to_pylist() == sorted(table.column("n").to_pylist())


@pytest.mark.thorough
def test_large_sorted_files_have_several_row_groups(tmp_path: Path) -> None:
    rows = pa.record_batch({"n": range(40_000, 0, -1), "v": pa.array([b"x" * 4000] * 40_000)})
    files = files_in(tmp_path, sink_of(sort_by=[{"column": "n"}]), provenance=None)
    files.write(rows)
    (output,) = files.prepare_commit().files
    metadata = pq.read_metadata(tmp_path / output.staged_path)
    assert metadata.num_row_groups == 2
    assert metadata.row_group(0).column(0).statistics.max < metadata.row_group(1).column(0).statistics.min


@pytest.mark.parametrize("column", ["missing", "list"])
def test_column_that_can_not_be_sorted_is_rejected_before_a_record_is_read(column: str) -> None:
    schema = pa.schema([("list", pa.list_(pa.int64()))])
    with pytest.raises(ConfigurationError, match=f"column={column}"):
        sink_of(sort_by=[{"column": column}]).check_schema(schema)


# -- columns


def test_configured_columns_are_encoded_as_set_and_others_by_default(tmp_path: Path) -> None:
    columns = {
        "n": {"encoding": "delta_binary_packed", "compression": "snappy"},
        "country": {"dictionary": False, "bloom_filter": True},
    }
    rows = [("c" * 20, n, 0) for n in range(5000)]
    more = pa.array([[n] for n in range(5000)], pa.list_(pa.int64()))
    batch = batch_of(rows).append_column("list", more)
    files = files_in(tmp_path, sink_of(columns=columns), provenance=None)
    files.write(batch)
    (output,) = files.prepare_commit().files
    path = tmp_path / output.staged_path
    group = pq.read_metadata(path).row_group(0)
    chunks = {group.column(place).path_in_schema: group.column(place) for place in range(4)}
    assert {name: column.compression for name, column in chunks.items()} == {
        "country": "ZSTD",
        "n": "SNAPPY",
        "at": "ZSTD",
        "list.list.element": "ZSTD",
    }
    assert "DELTA_BINARY_PACKED" in chunks["n"].encodings
    assert {name for name, column in chunks.items() if column.has_dictionary_page} == {"at", "list.list.element"}
    assert [name for name, column in chunks.items() if column.bloom_filter_offset] == ["country"]
    assert read_footer(FS, str(path)) is not None
    assert read_records(FS, str(path)).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize(
    ("columns", "plain"),
    [
        ({}, {"other", "said", "text"}),
        ({"said": {"dictionary": True}, "ten": {"compression": "snappy"}}, {"other", "text"}),
        ({"other": {"encoding": "plain"}, "ten": {"dictionary": False}}, {"other", "said", "ten", "text"}),
    ],
)
def test_mostly_unique_values_have_no_dictionary_unless_configured(
    tmp_path: Path, columns: Any, plain: set[str]
) -> None:
    numbers = range(50_000)
    batch = pa.record_batch(
        {
            "other": [n * 7919 % 1_000_003 for n in numbers],
            "said": numbers,
            "ten": [n % 10 for n in numbers],
            "sorted": [n // 100 for n in numbers],
            "text": [str(n) for n in numbers],
            "long": ["x" * 65 + str(n) for n in numbers],
            "null": pa.nulls(len(numbers), pa.int64()),
            "list": [[n] for n in numbers],
        }
    )
    files = files_in(tmp_path, sink_of(columns=columns), provenance=None)
    files.write(batch)
    (output,) = files.prepare_commit().files
    path = tmp_path / output.staged_path
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    assert {column.path_in_schema for column in chunks if not column.has_dictionary_page} == plain
    assert read_records(FS, str(path)).equals(pa.Table.from_batches([batch]))


def test_files_of_few_rows_have_dictionaries(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": range(2000), "text": ["x" * 1000] * 2000})
    files = files_in(tmp_path, sink_of(), provenance=None)
    files.write(batch)
    (output,) = files.prepare_commit().files
    group = pq.read_metadata(tmp_path / output.staged_path).row_group(0)
    assert [group.column(place).has_dictionary_page for place in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ({"missing": {"dictionary": False}}, "missing"),
        ({"text": {"encoding": "delta_binary_packed"}}, "text"),
        ({"flag": {"bloom_filter": True}}, "flag"),
        ({"list": {"dictionary": False}}, "list"),
    ],
)
def test_settings_of_columns_that_do_not_match_are_rejected_before_a_record_is_read(columns: Any, column: str) -> None:
    schema = pa.schema([("text", pa.string()), ("flag", pa.bool_()), ("list", pa.list_(pa.int64()))])
    with pytest.raises(ConfigurationError, match=f"column={column}"):
        sink_of(columns=columns).check_schema(schema)


def test_orc_has_bloom_filters_of_the_configured_columns_and_reads_the_same(tmp_path: Path) -> None:
    """`test_formats` checks with another reader which columns have one."""
    inner = pa.StructArray.from_arrays([pa.array(range(5000)), pa.array([[n] for n in range(5000)])], ["a", "b"])
    batch = batch_of([("c" * (n % 9), n, 0) for n in range(5000)]).append_column("inner", inner)
    sizes = {}
    for named in ((), ("country",), ("country", "at")):
        folder = tmp_path / str(len(named))
        folder.mkdir()
        columns = {name: {"bloom_filter": True} for name in named} | {"n": {"bloom_filter": False}}
        files = files_in(folder, sink_of(format="orc", columns=columns), provenance=None)
        files.write(batch)
        (output,) = files.prepare_commit().files
        assert read_records(FS, str(folder / output.staged_path)).equals(pa.Table.from_batches([batch]))
        sizes[len(named)] = output.size_bytes
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize("column", ["missing", "list"])
def test_bloom_filters_that_orc_can_not_have_are_rejected_before_a_record_is_read(column: str) -> None:
    schema = pa.schema([("text", pa.string()), ("list", pa.list_(pa.int64()))])
    with pytest.raises(ConfigurationError, match=f"column={column}"):
        sink_of(format="orc", columns={column: {"bloom_filter": True}}).check_schema(schema)


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("parquet", "orc")])
def test_column_settings_of_other_formats_are_rejected(form: FileFormat) -> None:
    with pytest.raises(ValidationError, match="columns must only be set with format: parquet or orc"):
        sink_of(format=form, columns={"n": {"bloom_filter": True}})


def test_orc_accepts_only_bloom_filter_settings() -> None:
    with pytest.raises(ValidationError, match=r"(?s)n\.compression must not be set.*n\.dictionary must not be set"):
        sink_of(format="orc", columns={"n": {"dictionary": False, "compression": "zstd", "bloom_filter": True}})
