"""Things that sinks write to, so that a job whose source reads one of them is refused."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

ICEBERG = "iceberg"
"""The system of all Iceberg tables: which catalogs are one and the same is not known."""
_LOCAL: Mapping[str, str] = {"localhost": "127.0.0.1", "[::1]": "127.0.0.1", "::1": "127.0.0.1"}
_PORTS: Mapping[str, int] = {"postgresql": 5432, "mysql": 3306}
_DIALECTS = {"mariadb": "mysql"}


@dataclass(frozen=True, slots=True)
class Target:
    """A thing that a sink writes to, as far as its settings name it.

    Attributes:
        kind: what it is; `root`: one of the job's own folders, which has no files but in folders.
        name: a topic; `schema.table`, or a table alone where there is no schema; a folder's path or URL.
        systems: addresses that its system may have. A folder has none.
    """

    kind: Literal["topic", "table", "folder", "root"]
    name: str
    systems: frozenset[str] = frozenset()

    def is_in(self, systems: frozenset[str]) -> bool:
        """Return whether one of the addresses is an address of this target's system."""
        return not self.systems.isdisjoint(systems)


def broker_addresses(brokers: str) -> frozenset[str]:
    """Return the addresses of a list of Kafka brokers, separated by commas."""
    found = (broker.strip().rpartition("://")[2].lower() for broker in brokers.split(","))
    return frozenset(_address(host or port, port if host else "9092") for host, _, port in map(_parted, found) if port)


def database_address(url: str) -> frozenset[str]:
    """Return the address of a URL's database: dialect, server and name; a path of SQLite."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    dialect = _DIALECTS.get(parts.scheme, parts.scheme)
    name = unquote(parts.path.removeprefix("/"))
    if dialect == "sqlite":
        return frozenset({f"sqlite:{posixpath.normpath(name)}"})
    port = str(parts.port or _PORTS.get(dialect, 0))
    return frozenset({f"{dialect}://{_address((parts.hostname or 'localhost').lower(), port)}/{name}"})


def is_within(folder: str, other: str) -> bool:
    """Return whether a folder is another one, or lies in it."""
    return (folder.rstrip("/") + "/").startswith(other.rstrip("/") + "/")


def _parted(broker: str) -> tuple[str, str, str]:
    return broker.rpartition(":")


def _address(host: str, port: str) -> str:
    return f"{_LOCAL.get(host, host)}:{port}"
