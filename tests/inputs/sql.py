"""Inputs of the SQL source and of the sinks that write rows to database tables."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.fs.database_tls import (
    Tls,
    check_mysql_url,
    check_postgresql_url,
    mysql_arguments,
    postgresql_arguments,
)
from distcommit.schemas.column_names import ColumnNames
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.mariadb import columns as mariadb
from distcommit.sinks.postgresql import columns as postgresql
from distcommit.sinks.sqlite import columns as sqlite
from tests.inputs.case import Case


def _verification(url: str, tls: Tls = "verify") -> Callable[[Path], str]:
    """Return the server verification of a connection to this URL, or why the URL is rejected."""

    def run(folder: Path) -> str:
        try:
            if url.startswith("mysql"):
                check_mysql_url(url, tls)
                context = mysql_arguments(url, tls).get("ssl")
                return "none required" if context is None else _shown(context)
            check_postgresql_url(url, tls)
            mode = postgresql_arguments(url, tls, {}).get("sslmode")
        except ValueError as error:
            return f"rejected: {error}"
        return "certificate and host" if mode == "verify-full" else "none required"

    return run


def _shown(context: ssl.SSLContext) -> str:
    required = context.verify_mode is ssl.CERT_REQUIRED
    return "certificate and host" if required and context.check_hostname else "incomplete"


def _sqlite(declared: str, array: pa.Array) -> Callable[[Path], str]:
    return lambda folder: _sent(
        lambda rows: sqlite.values(rows, {"n": sqlite.Column("n", declared, in_key=False)})[0][0], array
    )


def _mariadb(declared: str, array: pa.Array) -> Callable[[Path], str]:
    column = mariadb.column_of("n", declared, nullable=True)
    return lambda folder: _sent(lambda rows: next(mariadb.values(rows, {"n": column}))[0], array)


def _postgresql(kind: str, array: pa.Array) -> Callable[[Path], str]:
    column = postgresql.Column("n", kind, -1, f"n {kind}")
    return lambda folder: _sent(lambda rows: postgresql.fitted(rows, {"n": column}).column(0)[0].as_py(), array)


def _sent(send: Callable[[pa.RecordBatch], object], array: pa.Array) -> str:
    """Return the value that is sent to the database, or why it is rejected."""
    try:
        return repr(send(pa.record_batch([array], names=["n"])))
    except RefusedError as error:
        return f"rejected: {str(error).partition(': ')[2].partition('. Alter')[0]}"


def _named(rule: ColumnNames, *names: str) -> Callable[[Path], str]:
    """Return the names if a table can have them, or why one is rejected."""

    def run(folder: Path) -> str:
        try:
            rule.check(names)
        except ConfigurationError as error:
            return f"rejected: {error.found}"
        return "kept"

    return run


_BOTH, _NONE = "certificate and host", "none required"
_TLS = [
    ("mysql://u@db.example/d", "verify", _BOTH),
    ("mysql://u@10.0.0.7/d", "verify", _BOTH),
    ("mysql://u@localhost/d", "verify", _NONE),
    ("mysql://u@127.0.0.2/d", "verify", _NONE),
    ("mysql://u@[::1]/d", "verify", _NONE),
    ("mysql://u@localhost/d?ssl_verify_identity=on", "verify", _BOTH),
    ("mysql://u@db.example/d?unix_socket=/run/db.sock", "verify", _NONE),
    ("mysql://u@db.example/d", "insecure", _NONE),
    (
        "mysql://u@db.example/d?ssl_verify_identity=false",
        "verify",
        "rejected: option ssl_verify_identity must not be false; set tls: insecure to accept any certificate",
    ),
    (
        "mysql://u@db.example/d?ssl_verify_cert=ja",
        "verify",
        "rejected: option ssl_verify_cert must be true or false, but is 'ja'",
    ),
    (
        "mysql://u@db.example/d?ssl_mode=DISABLED",
        "verify",
        "rejected: option 'ssl_mode' is unknown; it must be one of charset, connect_timeout, read_timeout, ssl_ca,"
        " ssl_cert, ssl_key, ssl_verify_cert, ssl_verify_identity, unix_socket, write_timeout",
    ),
    (
        "mysql://u@db.example/d?ssl_ca=/ca.pem",
        "insecure",
        "rejected: option ssl_ca contradicts tls: insecure; remove one of them",
    ),
    ("postgresql://u@db.example/d", "verify", _BOTH),
    ("postgresql://u@localhost/d", "verify", _NONE),
    ("postgresql:///d", "verify", _NONE),
    ("postgresql://u@localhost,db.example/d", "verify", _BOTH),
    ("postgresql://u@localhost/d?hostaddr=10.0.0.7", "verify", _BOTH),
    ("postgresql://u@localhost/d?host=/run/postgresql", "verify", _NONE),
    ("postgresql:///d?service=shop", "verify", _BOTH),
    ("postgresql://u@localhost/d?sslrootcert=/ca.pem", "verify", _BOTH),
    ("postgresql://u@db.example/d", "insecure", _NONE),
    (
        "postgresql://u@db.example/d?sslmode=require",
        "verify",
        "rejected: option sslmode=require does not verify certificate and host name; set it to verify-full, or set"
        " tls: insecure to accept that",
    ),
    (
        "postgresql://u@db.example/d?sslmode=on",
        "verify",
        "rejected: option sslmode must be one of disable, allow, prefer, require, verify-ca, verify-full, but is 'on'",
    ),
]
_NEWEST = "tests/unit/sinks/upsert_cases.py::NewestCases::"
_UPSERTS = [
    (
        "value, tombstone, value at offsets 1, 2, 3 in one commit",
        "value of offset 3",
        "test_value_tombstone_value_in_one_commit_ends_as_the_last_value",
    ),
    (
        "value, tombstone, value in three runs",
        "value of offset 3",
        "test_value_tombstone_value_over_three_commits_ends_as_the_last_value",
    ),
    (
        "offsets 1 and 3 of one schema before offset 2 of another one",
        "value of offset 3",
        "test_rows_grouped_by_schema_end_as_the_newest",
    ),
    (
        "a wide row of offset 2, then narrow ones of offsets 1 and 3",
        "narrow row of offset 3",
        "test_alternating_schemas_end_as_the_newest",
    ),
    (
        "offset 6 read again over offset 7",
        "value of offset 7",
        "test_range_that_is_read_again_replaces_no_newer_row",
    ),
    ("offset 5 reprocessed over offset 9", "value of offset 9", "test_reprocessed_row_replaces_no_newer_row"),
    ("offset 5 reprocessed over offset 1", "value of offset 5", "test_reprocessed_row_replaces_an_older_row"),
    (
        "partition 1 of run 2 reprocessed over partition 0 of run 3",
        "value of run 3",
        "test_reprocessed_row_of_another_partition_is_compared_by_its_run",
    ),
    (
        "offset 1 of a recreated topic over offset 100",
        "value of the recreated topic",
        "test_rows_of_a_recreated_topic_are_newer_than_all_earlier_rows",
    ),
    (
        "a commit that is replayed after a later one",
        "value of the later one",
        "test_commit_replayed_after_a_later_one_changes_nothing",
    ),
    (
        "version 3 at offset 9 over version 5 at offset 1",
        "value of version 5",
        "test_version_column_decides_which_row_is_newer",
    ),
    (
        "a null version over version 1",
        "value of version 1",
        "test_row_without_version_is_older_than_one_with_a_version",
    ),
]
_VALUES = [
    ("-0.0 in REAL", "SQLite", _sqlite("REAL", pa.array([-0.0])), "rejected: -0.0, which SQLite stores as 0.0"),
    ("NaN in REAL", "SQLite", _sqlite("REAL", pa.array([math.nan])), "rejected: NaN, which SQLite stores as NULL"),
    ("infinity in REAL", "SQLite", _sqlite("REAL", pa.array([math.inf])), "inf"),
    ("0.0 in REAL", "SQLite", _sqlite("REAL", pa.array([0.0])), "0.0"),
    ("a NUL in TEXT", "SQLite", _sqlite("TEXT", pa.array(["a\0b"])), "'a\\x00b'"),
    ("-2^63 in INTEGER", "SQLite", _sqlite("INTEGER", pa.array([-(2**63)])), "-9223372036854775808"),
    ("1.50 in TEXT", "SQLite", _sqlite("TEXT", pa.array([Decimal("1.50")])), "'1.50'"),
    ("-0.0 in double", "MariaDB", _mariadb("double", pa.array([-0.0])), "rejected: -0.0, which MariaDB stores as 0"),
    (
        "NaN in double",
        "MariaDB",
        _mariadb("double", pa.array([math.nan])),
        "rejected: NaN or infinity, which MariaDB does not have",
    ),
    (
        "infinity in double",
        "MariaDB",
        _mariadb("double", pa.array([math.inf])),
        "rejected: NaN or infinity, which MariaDB does not have",
    ),
    ("a NUL in text", "MariaDB", _mariadb("text", pa.array(["a\0b"])), "'a\\x00b'"),
    (
        "a space at the end in char(3)",
        "MariaDB",
        _mariadb("char(3)", pa.array(["a "])),
        "rejected: spaces at its end, which a `char` does not keep",
    ),
    (
        "2^64 - 1 in bigint unsigned",
        "MariaDB",
        _mariadb("bigint unsigned", pa.array([2**64 - 1], pa.uint64())),
        "18446744073709551615",
    ),
    (
        "one byte in binary(2)",
        "MariaDB",
        _mariadb("binary(2)", pa.array([b"a"])),
        "rejected: not 2 bytes: others are filled up",
    ),
    ("-0.0 in float8", "PostgreSQL", _postgresql("float8", pa.array([-0.0])), "-0.0"),
    ("NaN in float8", "PostgreSQL", _postgresql("float8", pa.array([math.nan])), "nan"),
    (
        "[-0.0] in jsonb",
        "PostgreSQL",
        _postgresql("jsonb", pa.array([[-0.0]])),
        "rejected: -0.0, which is stored as 0.0",
    ),
    ("[-0.0] in json", "PostgreSQL", _postgresql("json", pa.array([[-0.0]])), "'[-0.0]'"),
    (
        "the day that is -infinity in date",
        "PostgreSQL",
        _postgresql("date", pa.array([-(2**31) + 10_957], pa.int32()).cast(pa.date32())),
        "rejected: a time that PostgreSQL reads as `-infinity`",
    ),
    (
        "the time that is -infinity in timestamp",
        "PostgreSQL",
        _postgresql("timestamp", pa.array([-(2**63) + 946_684_800_000_000]).cast(pa.timestamp("us"))),
        "rejected: a time that PostgreSQL reads as `-infinity`",
    ),
]
_COLUMNS = [
    ("64 bytes", postgresql.NAMES, ("x" * 64,), "rejected: 64 bytes, of which the database keeps 63"),
    ("63 bytes", postgresql.NAMES, ("x" * 63,), "kept"),
    ("32 letters ü", postgresql.NAMES, ("ü" * 32,), "rejected: 64 bytes, of which the database keeps 63"),
    ("ctid", postgresql.NAMES, ("ctid",), "rejected: a name that the database reserves"),
    ("an empty name", postgresql.NAMES, ("",), "rejected: an empty name"),
    ("Id beside id", postgresql.NAMES, ("Id", "id"), "rejected: the same name as 'Id', but for its case"),
    ("per%cent", postgresql.NAMES, ("per%cent",), "kept"),
    ("ctid", mariadb.NAMES, ("ctid",), "kept"),
    ("a space at the end", mariadb.NAMES, ("a ",), "rejected: a space at its end"),
    (
        "a character of plane 1",
        mariadb.NAMES,
        ("\U0001f600",),
        "rejected: a character outside of Unicode's basic plane",
    ),
    ("65 characters", mariadb.NAMES, ("x" * 65,), "rejected: 65 characters, of which the database takes 64"),
    ("Id beside id", sqlite.NAMES, ("Id", "id"), "rejected: the same name as 'Id', but for its case"),
    ("a NUL", sqlite.NAMES, ("a\0b",), "rejected: a NUL character"),
    ("a character of plane 1", sqlite.NAMES, ("\U0001f600",), "kept"),
]
CASES = [
    *(Case("database value", f"{given} of {where}", right, run=run) for given, where, run, right in _VALUES),
    *(
        Case("column name", f"{given} in {rule.database}", right, run=_named(rule, *names))
        for given, rule, names, right in _COLUMNS
    ),
    *(Case("upsert", given, right, test=_NEWEST + test) for given, right, test in _UPSERTS),
    *[
        Case(
            "tls", f"{url} with tls: {tls}", right, run=_verification(url, "verify" if tls == "verify" else "insecure")
        )
        for url, tls, right in _TLS
    ],
]
