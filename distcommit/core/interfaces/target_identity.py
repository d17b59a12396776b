"""Identities of the targets that sinks write to. They are compared with the source's, to reject a job that reads its
own output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from distcommit.core.support.system_addresses import WAREHOUSE

ICEBERG = "iceberg"
"""The system of all Iceberg tables. Two catalogs can be compared only where both have an address."""
_ANY = "*"


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
                address for address in self.systems - {ICEBERG} if address.startswith(WAREHOUSE) is is_warehouse
            }
            other_value = {address for address in addresses if address.startswith(WAREHOUSE) is is_warehouse}
            if translated and other_value and translated.isdisjoint(other_value):
                return True
        return False

    def in_any_system(self) -> Target:
        """Return the target as part of every system, so that only names are compared."""
        return replace(self, systems=frozenset({_ANY}))
