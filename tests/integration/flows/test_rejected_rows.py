"""Filtered, rejected and reprocessed rows of tables, in a job that is killed in the middle of its commit.

Each row is in its place with all columns, and the audit reports how many are where.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.auditing.partition_audit import CountedRow
from tests.jobs.in_commit import killed_in_commit, run_of

TABLES = [f"t{number}" for number in range(6)]
KEPT = {"any": [{"column": "error_reason", "op": "is_null"}, {"column": "error_reason", "op": "!=", "value": "none"}]}
CHECK = {"type": "regex", "column": "name", "pattern": "[a-z]+"}


def rows(begin: int, end: int) -> list[tuple[int, str, str | None]]:
    """Return rows; of six, one is filtered and one rejected."""
    names, reasons = ("a", "b", "c", "d", "e", "F"), ("late", None, "none", "late", None, "torn")
    return [(n, names[n % 6], reasons[n % 6]) for n in range(begin, end)]


class Tables:
    """Job on tables that have a column with a name that error files use."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.file, self.count = folder, folder / "job.yaml", folder / "tables.db", 0
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for table in TABLES:
                connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT, error_reason TEXT)")
        self.write(row_checkers=[CHECK])

    def write(self, **more: Any) -> None:
        source = {"type": "sql", "url": f"sqlite:///{self.file}", "table_patterns": ["t.*"], "watermark": "id"}
        config = {
            "job": "rows",
            "source": {**source, "lookback": 0, "batch_rows": 7},
            "converters": [{"type": "filter", "when": KEPT}],
            "on_rejected": "divert",
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 4, "min_interval_ms": 60_000},
            "spark": {"master": "local[2,4]"},
            **more,
        }
        self.path.write_text(yaml.safe_dump(config))

    def add(self, count: int) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for table in TABLES:
                new = rows(self.count, self.count + count)
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", new)
        self.count += count

    def killed(self, name: str) -> bool:
        """Kill a run once its commit has begun, and return whether it was caught."""
        return killed_in_commit(self.path, partial(run_of, self.path, name))

    def require(self, rejected: int, filtered: int) -> None:
        """Assert how many rows of each table are rejected and filtered, and that all others are published unchanged."""
        audit = Job.from_file(self.path).audit(deep=True)
        assert (audit.exact, audit.partitions) == (True, [])
        assert audit.counted_branches == [CountedRow(table, "main", rejected, {"filter": filtered}) for table in TABLES]
        assert (audit.rejected, audit.filtered) == (len(TABLES) * rejected, len(TABLES) * filtered)
        bad = [] if not rejected else [row for row in rows(0, self.count) if row[1] == "F"]
        good = [row for row in rows(0, self.count) if row[2] != "none" and row not in bad]
        for table in TABLES:
            content = ds.dataset(sorted(map(str, (self.folder / "output" / table).rglob("*.parquet")))).to_table()
            assert content.schema.names == ["id", "name", "error_reason"]
            assert sorted(tuple(row.values()) for row in content.to_pylist()) == good


@pytest.mark.slow
def test_published_filtered_and_reprocessed_rows_keep_all_columns_in_spite_of_kills(
    tmp_path: Path, spark: SparkSession
) -> None:
    job, kills = Tables(tmp_path), 0
    for attempt in range(2):
        job.add(18)
        kills += job.killed(f"run-{attempt}")
    assert kills, "no run was killed in the middle of its commit"
    job.add(6)
    assert Job.from_file(job.path, session=spark).run().succeeded
    job.require(rejected=7, filtered=7)

    job.write()
    assert Job.from_file(job.path, session=spark).reprocess_all().totals.records_rejected == 0
    job.require(rejected=0, filtered=7)
