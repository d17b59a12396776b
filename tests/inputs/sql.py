"""Inputs of the SQL source and of the sinks that put rows into tables of databases."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from distcommit.fs.database_tls import (
    Tls,
    check_mysql_url,
    check_postgresql_url,
    mysql_arguments,
    postgresql_arguments,
)
from tests.inputs.case import Case


def _verification(url: str, tls: Tls = "verify") -> Callable[[Path], str]:
    """Return the check of the server that a connection to this URL makes, or why the URL is rejected."""

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
        "rejected: has no setting 'ssl_mode': there are charset, connect_timeout, read_timeout, ssl_ca, ssl_cert,"
        " ssl_key, ssl_verify_cert, ssl_verify_identity, unix_socket, write_timeout",
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
_NEWEST = "tests/unit/sinks/newest_cases.py::NewestCases::"
_UPSERTS = [
    (
        "value, tombstone, value at offsets 1, 2, 3 in one commit",
        "value of offset 3",
        "value_tombstone_value_in_one_commit_ends_as_the_last_value",
    ),
    (
        "value, tombstone, value in three runs",
        "value of offset 3",
        "value_tombstone_value_over_three_commits_ends_as_the_last_value",
    ),
    (
        "offsets 1 and 3 of one schema before offset 2 of another one",
        "value of offset 3",
        "rows_that_a_converter_has_grouped_by_schema_end_as_the_newest",
    ),
    (
        "a wide row of offset 2, then narrow ones of offsets 1 and 3",
        "narrow row of offset 3",
        "schemas_that_evolve_to_and_fro_end_as_the_newest",
    ),
    (
        "offset 6 read again over offset 7",
        "value of offset 7",
        "a_range_that_is_read_again_takes_the_place_of_no_newer_row",
    ),
    ("offset 5 reprocessed over offset 9", "value of offset 9", "a_reprocessed_row_takes_the_place_of_no_newer_one"),
    ("offset 5 reprocessed over offset 1", "value of offset 5", "a_reprocessed_row_takes_the_place_of_an_older_one"),
    (
        "partition 1 of run 2 reprocessed over partition 0 of run 3",
        "value of run 3",
        "a_reprocessed_row_of_another_partition_is_compared_by_its_run",
    ),
    (
        "offset 1 of a recreated topic over offset 100",
        "value of the recreated topic",
        "rows_of_a_recreated_topic_are_newer_than_all_of_the_former_one",
    ),
    (
        "a commit that is replayed after a later one",
        "value of the later one",
        "a_commit_that_is_replayed_after_a_later_one_changes_nothing",
    ),
    (
        "version 3 at offset 9 over version 5 at offset 1",
        "value of version 5",
        "a_version_column_says_which_row_is_newer",
    ),
    ("a null version over version 1", "value of version 1", "a_row_without_version_is_older_than_one_with"),
]
CASES = [
    *(Case("upsert", given, right, test=f"{_NEWEST}test_{test}") for given, right, test in _UPSERTS),
    *[
        Case(
            "tls", f"{url} with tls: {tls}", right, run=_verification(url, "verify" if tls == "verify" else "insecure")
        )
        for url, tls, right in _TLS
    ],
]
