"""The catalogs that a process has open, one for each settings, and what its writers know of their tables."""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from functools import lru_cache
from threading import Lock

from pyiceberg.catalog import load_catalog

from distcommit.sinks.base.retries import tries
from distcommit.sinks.iceberg.catalogs import Identifier, KnownTables, Tables
from distcommit.sinks.iceberg.rest_tables import RestTables
from distcommit.sinks.iceberg.settings import CatalogSettings
from distcommit.sinks.iceberg.sql_tables import SqlTables

_OPENING_TRIES = 5
_MOST_OPEN = 8
_lock = Lock()
_opened: OrderedDict[tuple[str, int], Tables] = OrderedDict()
"""By settings and process, those used longest ago first."""


def opened(settings: CatalogSettings) -> Tables:
    """The catalog of these settings, one in each process: connections of one that has forked are not its child's. A
    process that outlives jobs has the eight open that were asked for last."""
    key = (settings.model_dump_json(), os.getpid())
    with _lock:
        if key not in _opened:
            _opened[key] = _open(settings)
        _opened.move_to_end(key)
        while len(_opened) > _MOST_OPEN:
            _close(*_opened.popitem(last=False))
        return _opened[key]


def _close(key: tuple[str, int], tables: Tables) -> None:
    if key[1] == os.getpid():
        tables.catalog.close()


@atexit.register
def close_opened() -> None:
    """Lets go of the catalogs' connections; they are opened again where they are needed."""
    with _lock:
        _known.cache_clear()
        while _opened:
            _close(*_opened.popitem())


def known_tables(settings: CatalogSettings, namespace: Identifier, run_id: str) -> KnownTables:
    """What writers of a run know of a namespace, once in each process."""
    tables = opened(settings)
    with _lock:
        return _known(tables, namespace, run_id)


@lru_cache(4)  # of some branches; in a worker that lasts, runs come and go
def _known(tables: Tables, namespace: Identifier, run_id: str) -> KnownTables:
    return KnownTables(tables, namespace)


def _open(settings: CatalogSettings) -> Tables:
    """Of several that make the catalog's own tables at once a database refuses all but one."""
    for number in tries(_OPENING_TRIES, first_wait_s=0.2):
        try:
            catalog = load_catalog(settings.name, **settings.properties)
            return SqlTables(catalog) if settings.type == "sql" else RestTables(catalog)
        except Exception:
            if number == _OPENING_TRIES:
                raise
    raise AssertionError
