"""Connections to database servers: which are verified, and which URLs are rejected."""

from __future__ import annotations

import pytest

from distcommit.fs.database_tls import postgresql_arguments


@pytest.mark.parametrize(
    ("url", "environment", "is_verified"),
    [
        ("postgresql://localhost/d", {"PGHOSTADDR": "10.0.0.7"}, True),
        ("postgresql:///d?host=/run/postgresql", {"PGHOSTADDR": "127.0.0.1,10.0.0.7"}, True),
        ("postgresql:///d", {"PGHOSTADDR": "10.0.0.7"}, True),
        ("postgresql:///d", {"PGHOST": "/run/postgresql,db.example"}, True),
        ("postgresql://localhost/d?hostaddr=127.0.0.1", {"PGHOSTADDR": "10.0.0.7"}, False),
        ("postgresql://localhost/d?hostaddr=::1", {}, False),
        ("postgresql://localhost/d", {"PGHOST": "db.example"}, False),
        ("postgresql://localhost/d", {"PGHOSTADDR": "127.0.0.1"}, False),
        ("postgresql://localhost/d", {"PGSERVICE": "shop"}, True),
        ("postgresql://localhost/d?service=shop", {}, True),
    ],
)
def test_server_is_verified_if_libpq_may_connect_to_a_remote_address(
    url: str, environment: dict[str, str], is_verified: bool
) -> None:
    arguments = postgresql_arguments(url, "verify", environment)
    assert (arguments.get("sslmode") == "verify-full") == is_verified
