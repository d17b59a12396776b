"""The catalogs that a process has open, one for each settings, and what its writers know of their tables."""

from __future__ import annotations

import atexit
import os
import time
from threading import Lock

from pyiceberg.catalog import load_catalog

from distcommit.sinks.iceberg.catalogs import Identifier, KnownTables, Tables
from distcommit.sinks.iceberg.rest_tables import RestTables
from distcommit.sinks.iceberg.settings import CatalogSettings
from distcommit.sinks.iceberg.sql_tables import SqlTables

_OPENING_TRIES = 5
_opened: dict[tuple[int, str], Tables] = {}
_known: dict[tuple[int, str, Identifier, str], KnownTables] = {}
_lock = Lock()


def opened(settings: CatalogSettings) -> Tables:
    """The catalog of these settings, one in each process."""
    key = os.getpid(), settings.model_dump_json()
    with _lock:
        if key not in _opened:
            for other in [
                other for other in _opened if other[0] != key[0]
            ]:  # those of the process that forked this one
                _opened.pop(other)
            _opened[key] = _open(settings)
        return _opened[key]


@atexit.register
def close_opened() -> None:
    """Lets go of the catalogs' connections; they are opened again where they are needed."""
    with _lock:
        for (process, _), tables in _opened.items():
            if process == os.getpid():
                tables.catalog.close()
        _opened.clear()
        _known.clear()


def known_tables(settings: CatalogSettings, namespace: Identifier, run_id: str) -> KnownTables:
    """What writers of a run know of a namespace, once in each process."""
    tables = opened(settings)
    key = os.getpid(), settings.model_dump_json(), namespace, run_id
    with _lock:
        if key not in _known:
            _known.clear()
            _known[key] = KnownTables(tables, namespace)
        return _known[key]


def _open(settings: CatalogSettings) -> Tables:
    for left in range(_OPENING_TRIES - 1, -1, -1):
        try:
            catalog = load_catalog(settings.name, **settings.properties)
            return SqlTables(catalog) if settings.type == "sql" else RestTables(catalog)
        except Exception:
            if not left:
                raise
            time.sleep(0.1)  # a database in which several make the catalog's tables at once refuses all but one
    raise AssertionError
