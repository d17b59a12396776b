"""PostgreSQL: the sink, from batches in memory to committed rows, and a bare loop of the same client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg import sql

from benchmarks.runner import WrongResultError
from distcommit.core.interfaces.committer import CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.postgresql.sink import PostgresqlSink

_COLUMNS = "kafka_partition integer, kafka_offset bigint, kafka_timestamp timestamptz, value text"
_TYPES = ("int4", "int8", "timestamptz", "text")


def by_sink(sink: PostgresqlSink, table: str, batches: Sequence[pa.RecordBatch], folder: Path) -> float:
    """Return the seconds of one dataset: a writer that stages and syncs, and a committer."""
    (folder / table).mkdir(parents=True)
    fs = LocalFileSystem()
    begun_s = time.perf_counter()
    area = StagingArea(fs, str(folder / table), table, str(folder))
    writer = sink.open_writer(
        AttemptIdentity("run", 1, table, "unit", table), area, Origin(Provenance("kafka_partition", "kafka_offset"))
    )
    for batch in batches:
        writer.write(batch)
    request = CommitRequest(table, 1, tuple(writer.prepare_commit().infos))
    fs.sync_tree(str(folder / table))
    committer = sink.open_committer(CommitterContext(fs, str(folder), str(folder), "store"))
    try:
        outcomes = list(committer.commit([request]))
    finally:
        committer.close()
    if outcomes != [Committed()]:
        raise WrongResultError(f"the sink did not commit: {outcomes}")
    return time.perf_counter() - begun_s


def by_copy(connection: psycopg.Connection, table: str, batches: Sequence[pa.RecordBatch]) -> float:
    """Return the seconds of the client's own binary COPY, row by row, in one transaction that also creates the
    table."""
    begun_s = time.perf_counter()
    with connection.transaction(), connection.cursor() as cursor:
        name = sql.Identifier(table)
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(_COLUMNS)))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(name)) as copy:
            copy.set_types(_TYPES)
            for batch in batches:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
    return time.perf_counter() - begun_s


def take(connection: psycopg.Connection, table: str, records: int) -> None:
    """Count the rows of a table and drop it.

    Raises:
        WrongResultError: if their number is not the expected one.
    """
    name = sql.Identifier(table)
    counts = connection.execute(
        sql.SQL("SELECT count(*), count(DISTINCT kafka_offset) FROM {}").format(name)
    ).fetchone()
    if counts != (records, records):
        raise WrongResultError(f"{table} has {counts} rows of {records}")
    connection.execute(sql.SQL("DROP TABLE {}").format(name))
    connection.execute("CHECKPOINT")
