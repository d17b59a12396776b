"""Connections to database servers: which are verified, and which URLs are rejected."""

from __future__ import annotations

import pytest

from distcommit.core.support.settings_model import SettingError
from distcommit.fs.database_tls import check_mysql_url, check_no_password, mysql_arguments, postgresql_arguments


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


@pytest.mark.parametrize("name", ["connect_timeout", "read_timeout", "write_timeout"])
@pytest.mark.parametrize("value", ["abc", "", "0", "-1", "1.5", "31536001", "²"])
def test_time_limit_that_is_not_a_number_of_seconds_is_rejected_before_connecting(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"option {name} must be a number of seconds from 1 to 31536000, but is"):
        check_mysql_url(f"mysql://u@localhost/d?{name}={value}", "verify")


def test_time_limit_in_seconds_is_passed_to_the_client() -> None:
    url = "mysql://u@localhost/d?connect_timeout=31536000&read_timeout=1"
    check_mysql_url(url, "verify")
    assert mysql_arguments(url, "verify") == {"connect_timeout": 31_536_000, "read_timeout": 1}


def test_password_file_in_a_url_is_not_a_password() -> None:
    check_no_password("postgresql://u@localhost/d?passfile=/run/secrets/pgpass", "sink")
    with pytest.raises(SettingError, match="must not contain a password"):
        check_no_password("postgresql://u@localhost/d?passfile=/run/secrets/pgpass&password=x", "sink")
