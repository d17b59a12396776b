"""The table that executors write about a run."""

import subprocess
import sys

import pytest
from msgspec import structs

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.records.run_counts import RunCounts
from distcommit.stores.history.run_table import (
    DatasetOutcome,
    TableRow,
    TaskIdentity,
    TaskRows,
    decode_task_rows,
    encode_task_rows,
    outcome_row,
)
from distcommit.stores.state.table_schemas import RUN_TABLE_SCHEMA
from tests.golden import samples

ENCODE = """
import sys
from distcommit.stores.history.run_table import DatasetOutcome, TaskIdentity, TaskRows, encode_task_rows, outcome_row
encode_task_rows(TaskRows(TaskIdentity("drain", 1, ""), [outcome_row("kafka:a", 1, DatasetOutcome.PUBLISHED)]))
assert "pandas" not in sys.modules
"""
TASK = TaskIdentity("drain", 2**31 - 1, "0" * 32)


def round_trip(*rows: TableRow) -> list[TableRow]:
    decoded = decode_task_rows(encode_task_rows(TaskRows(TASK, [*rows])), "/x")
    assert decoded.task == TASK
    return decoded.rows


@pytest.mark.parametrize(
    "text", ["", '"', "\\", "a\nb\r\t", "\x00\x1f\x7f", "\u2028\U0001f600", "2026-11-26 00:00:00", "1e9", "null", "{}"]
)
def test_any_text_survives_a_round_trip(text: str) -> None:
    counts = RunCounts(records_published=2**63 - 1, files_published=-1)
    row = outcome_row(text, 2**31 - 1, DatasetOutcome.FAILED, counts, text, text)
    assert round_trip(row) == [row]


def test_large_table_survives_a_round_trip() -> None:
    """It is larger than a JSON block."""
    many = [
        outcome_row(f"kafka:{number}", number, DatasetOutcome.PUBLISHED, reason="r" * 500) for number in range(20_000)
    ]
    assert round_trip(*many) == many


def test_reason_is_shortened() -> None:
    (row,) = round_trip(outcome_row("größe/1", 3, DatasetOutcome.FAILED, kind="failed", reason="x" * 1900))
    assert row.reason == "x" * 1000


def test_encoding_a_run_table_does_not_import_pandas() -> None:
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", ENCODE], check=True)


def test_damaged_table_or_table_of_another_version_is_rejected() -> None:
    data = encode_task_rows(samples.TASK_ROWS)
    assert decode_task_rows(data, "t") == samples.TASK_ROWS
    with pytest.raises(CorruptError, match="corrupt"):
        decode_task_rows(data[:-9], "t")
    with pytest.raises(CorruptError, match="0 rows"):
        decode_task_rows(encode_task_rows(TaskRows(TASK, [])), "t")
    assert data.count(b"table-version\x18\x011") == 1
    with pytest.raises(UnknownVersionError, match="found 9"):
        decode_task_rows(data.replace(b"table-version\x18\x011", b"table-version\x18\x019"), "t")


def test_stored_counts_are_fields_of_the_counts_structure() -> None:
    counts = set(RunCounts.__struct_fields__) & set(RUN_TABLE_SCHEMA.names)
    stored = structs.replace(RunCounts(), **dict.fromkeys(counts, 7))
    assert len(counts) == 12
    assert round_trip(outcome_row("a", 0, DatasetOutcome.PUBLISHED, stored))[0].counts == stored
