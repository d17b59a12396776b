"""Addresses of brokers, databases and catalogs in one form, so that two settings can be compared."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

WAREHOUSE = "warehouse:"
"""Prefix of a catalog's warehouse among its addresses."""
_LOCAL: Mapping[str, str] = {"localhost": "127.0.0.1", "[::1]": "127.0.0.1", "::1": "127.0.0.1"}
_PORTS: Mapping[str, int] = {"postgresql": 5432, "mysql": 3306, "http": 80, "https": 443}
_DIALECTS = {"mariadb": "mysql"}


def broker_addresses(brokers: str) -> frozenset[str]:
    """Return the addresses of a comma-separated list of Kafka brokers."""
    urls = (broker.strip().rpartition("://")[2].lower() for broker in brokers.split(","))
    return frozenset(
        _address(host or port, port if host else "9092") for host, _, port in map(_split_broker, urls) if port
    )


def database_address(url: str) -> frozenset[str]:
    """Return the address of a database URL: dialect, server and name, or the path for SQLite."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    dialect = _DIALECTS.get(parts.scheme, parts.scheme)
    name = unquote(parts.path.removeprefix("/"))
    if dialect == "sqlite":
        return frozenset({f"sqlite:{posixpath.normpath(name)}"})
    port = str(parts.port or _PORTS.get(dialect, 0))
    return frozenset({f"{dialect}://{_address((parts.hostname or 'localhost').lower(), port)}/{name}"})


def catalog_addresses(uri: str, warehouse: str) -> frozenset[str]:
    """Return the identity of an Iceberg catalog: its address, and for a service its warehouse."""
    text = re.sub(r"^jdbc:sqlite:(?=/)", "sqlite:///", uri.removeprefix("jdbc:") if "jdbc:sqlite" not in uri else uri)
    scheme, _, remainder = re.sub(r"^(\w+)\+\w+:", r"\1:", text).partition(":")
    if not remainder:
        return frozenset()
    if scheme not in ("http", "https", "thrift"):
        return database_address(f"{scheme}:{remainder}")
    parts = urlsplit(f"{scheme}:{remainder}")
    host = _address((parts.hostname or "").lower(), str(parts.port or _PORTS.get(scheme, 0)))
    address = f"{host}{parts.path.rstrip('/')}"
    return frozenset({address, f"{WAREHOUSE}{warehouse}"} if warehouse else {address})


def _split_broker(broker: str) -> tuple[str, str, str]:
    return broker.rpartition(":")


def _address(host: str, port: str) -> str:
    return f"{_LOCAL.get(host, host)}:{port}"
