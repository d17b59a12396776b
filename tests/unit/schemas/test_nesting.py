"""The nesting limit of columns: every accepted column can be read again in all file formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.schema_size_limits import MOST_LEVELS, check_levels, too_deep
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import FileSink
from tests.unit.sinks.files.test_formats import FS, written

KINDS = ("struct", "list", "map")


def column(kind: str, levels: int) -> pa.Array:
    """Return a column of two records: one with so many types of that kind nested, and a null."""
    created, value = pa.int64(), 1
    result: Any = value
    for _ in range(levels):
        created = {
            "struct": pa.struct([("y", created)]),
            "list": pa.list_(created),
            "map": pa.map_(pa.string(), created),
        }[kind]
        result = {"struct": {"y": result}, "list": [result], "map": [("k", result)]}[kind]
    return pa.array([result, None], created)


def most(kind: str) -> int:
    return MOST_LEVELS if kind == "struct" else MOST_LEVELS // 2


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("parquet", "map"),
        *((form, kind) for form in ("parquet", "avro", "orc", "jsonl") for kind in ("struct", "list")),
    ],
)
def test_column_within_the_limit_can_be_read_again(tmp_path: Path, kind: str, form: FileFormat) -> None:
    rows = pa.table({"x": column(kind, most(kind))})
    assert not too_deep(rows.schema)
    path = str(written(tmp_path, FileSink(format=form), rows))
    assert read_footer(FS, path) is not None
    assert read_records(FS, path).column("x").to_pylist() == rows.column("x").to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_column_beyond_the_limit_is_reported_by_name(kind: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("deep", column(kind, most(kind) + 1).type)])
    with pytest.raises(ConfigurationError, match=r"nested too deep.*column=deep.*at most 96 levels"):
        check_levels(schema)


def test_types_without_children_have_no_level() -> None:
    kinds = [pa.dictionary(pa.int32(), pa.string()), pa.struct([]), pa.json_(), pa.uuid(), pa.null()]
    check_levels(pa.schema([(str(number), kind) for number, kind in enumerate(kinds)]))
