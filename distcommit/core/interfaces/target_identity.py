"""Identities of the targets that sinks write to. They are compared with the source's, to reject a job that reads its
own output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from distcommit.core.support.comparable_addresses import WAREHOUSE

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
        """Return whether an Iceberg catalog cannot contain the target: both have known addresses and share none, or
        both have known warehouses and share none. False if too little is known.

        Args:
            addresses: the catalog's `catalog_addresses`: its address, and for a service its warehouse.
        """
        for is_warehouse in (False, True):
            own_values = {
                address for address in self.systems - {ICEBERG} if address.startswith(WAREHOUSE) is is_warehouse
            }
            other_values = {address for address in addresses if address.startswith(WAREHOUSE) is is_warehouse}
            if own_values and other_values and own_values.isdisjoint(other_values):
                return True
        return False

    def in_any_system(self) -> Target:
        """Return the target as part of every system, so that only names are compared."""
        return replace(self, systems=frozenset({_ANY}))
