"""Examples on the pages do what the text beside them says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from distcommit.app.job_file.built_in_types import validated
from distcommit.testing.fakes.convert_batch import convert_batch
from tests.unit.test_pages import DOCS, text_of

SCHEMAS = DOCS / "guides" / "schemas.md"
KAFKA = DOCS / "connectors" / "source-kafka.md"
SQL = DOCS / "connectors" / "source-sql.md"


def block_of(page: Path, language: str, words: str) -> str:
    """Return the only block of a page that contains these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if words in block)
    return str(block)


def converted(example: str, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any]], list[bytes | None]]:
    """Return the records that the converters of an example yield, and the values that they reject."""
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    rejected: list[bytes | None] = []
    for section in yaml.safe_load(example)["converters"]:
        given = batch.column("value").to_pylist()
        (result,) = convert_batch(validated("converter", section), batch)
        rejected += [given[row] for row in result.rejected]
        batch = result.records
    return batch.to_pylist(), rejected


def test_field_that_is_a_number_or_text_becomes_text() -> None:
    values = [b'{"id": 17, "page": "/a"}', b'{"id": "A-17"}', b"not JSON", b'{"page": "/b"}']
    records, rejected = converted(block_of(SCHEMAS, "yaml", "decode(value)"), values)
    assert [(record["id"], record["page"]) for record in records] == [("17", "/a"), ("A-17", None), (None, "/b")]
    assert rejected == [b"not JSON"]


def test_reason_of_a_number_in_a_field_of_text_is_the_one_on_the_page() -> None:
    batch = pa.record_batch({"value": pa.array([b'{"id": 17}'])})
    (result,) = convert_batch(validated("converter", {"type": "json", "fields": {"id": "string"}}), batch)
    shown = re.search(r"``(Expected [^$]*\$\.id`) ``", " ".join(text_of(SCHEMAS).split()))
    assert shown
    assert result.rejected[0].startswith(shown[1])


def test_messages_without_a_value_are_dropped() -> None:
    records, rejected = converted(block_of(KAFKA, "yaml", "is_null"), [None, b'{"id": 1}'])
    assert (records, rejected) == ([{"id": 1}], [])


def test_query_returns_the_newest_row_of_each_key(tmp_path: Path) -> None:
    rows = [{"id": 1, "updated_at": 10, "v": "a"}, {"id": 2, "updated_at": 11, "v": "b"}]
    rows_of_later_run = [{"id": 1, "updated_at": 12, "v": "c", "new": 1}]
    for number, part in enumerate((rows, rows_of_later_run)):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / f"{number}.parquet")
    query = block_of(SQL, "sql", "QUALIFY")
    of_files = duckdb.execute(query.replace("shop/output/orders", str(tmp_path))).fetchall()
    orders = pa.Table.from_pylist([*rows, *rows_of_later_run])
    of_table = duckdb.execute(re.sub(r"read_parquet\(.*\)\n", "orders\n", query)).fetchall()
    assert sorted(row[:3] for row in of_files) == sorted(row[:3] for row in of_table) == [(1, 12, "c"), (2, 11, "b")]
    assert orders.num_rows == 3
