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
CASES = [
    Case("tls", f"{url} with tls: {tls}", right, run=_verification(url, "verify" if tls == "verify" else "insecure"))
    for url, tls, right in _TLS
]
