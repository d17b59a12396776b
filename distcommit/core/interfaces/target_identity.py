"""Identities of the targets that sinks write to. They are compared with the source's, to reject a job that reads its
own output.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote, urlsplit

ICEBERG = "iceberg"
"""The system of all Iceberg tables. Two catalogs can be compared only where both have an address."""
_WAREHOUSE = "warehouse:"
_ANY = "*"
_LOCAL: Mapping[str, str] = {"localhost": "127.0.0.1", "[::1]": "127.0.0.1", "::1": "127.0.0.1"}
_PORTS: Mapping[str, int] = {"postgresql": 5432, "mysql": 3306, "http": 80, "https": 443}
_DIALECTS = {"mariadb": "mysql"}


@dataclass(frozen=True, slots=True)
class Target:
    """An object that a sink writes to, as far as its settings name it.

    Attributes:
        kind: the kind of object; `root` is one of the job's own folders, which holds files only in subfolders.
        name: a topic; `schema.table`, or a table alone where there is no schema; a folder's path or URL.
        systems: possible addresses of the target's system; none for a folder.
        elsewhere: names of Spark catalogs that are known not to contain the target.
    """

    kind: Literal["topic", "table", "folder", "root"]
    name: str
    systems: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()

    def is_in(self, systems: frozenset[str]) -> bool:
        """Return whether `systems` contains an address of this target's system."""
        return _ANY in self.systems or not self.systems.isdisjoint(systems)

    def apart_from(self, catalogs: Mapping[str, frozenset[str]]) -> Target:
        """Return the target with `elsewhere` set to the Spark catalogs that cannot contain it.

        Args:
            catalogs: the `catalog_addresses` of each catalog by name.
        """
        if ICEBERG not in self.systems:
            return self
        return replace(self, elsewhere=frozenset(name for name, of in catalogs.items() if self._is_apart_from(of)))

    def _is_apart_from(self, addresses: frozenset[str]) -> bool:
        """Return whether a catalog with these addresses has another address than the target's, or another warehouse."""
        for is_warehouse in (False, True):
            translated = {
                address for address in self.systems - {ICEBERG} if address.startswith(_WAREHOUSE) is is_warehouse
            }
            other_value = {address for address in addresses if address.startswith(_WAREHOUSE) is is_warehouse}
            if translated and other_value and translated.isdisjoint(other_value):
                return True
        return False

    def in_any_system(self) -> Target:
        """Return the target as part of every system, so that only names are compared."""
        return replace(self, systems=frozenset({_ANY}))


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
    return frozenset({address, f"{_WAREHOUSE}{warehouse}"} if warehouse else {address})


def is_within(folder: str, other: str) -> bool:
    """Return whether a folder equals another one or is inside it."""
    return (folder.rstrip("/") + "/").startswith(other.rstrip("/") + "/")


def _split_broker(broker: str) -> tuple[str, str, str]:
    return broker.rpartition(":")


def _address(host: str, port: str) -> str:
    return f"{_LOCAL.get(host, host)}:{port}"
