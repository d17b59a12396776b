"""The open catalogs of a process, and its writers' cached tables."""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from contextlib import closing
from functools import lru_cache
from threading import Lock

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from distcommit.core.errors import ConfigurationError, SinkUnavailableError, error_text
from distcommit.sinks.base.retries import tries
from distcommit.sinks.iceberg.catalog.rest_tables import RestTables
from distcommit.sinks.iceberg.catalog.sql_tables import SqlTables
from distcommit.sinks.iceberg.catalog.tables import Identifier, TableCache, Tables
from distcommit.sinks.iceberg.settings import CatalogSettings

_OPENING_TRIES = 5
_MOST_OPEN = 8
_SQLITE = "sqlite:///"
_lock = Lock()
_opened: OrderedDict[tuple[str, int], Tables] = OrderedDict()
"""Open catalogs by settings and process, the least recently used first."""


def opened(settings: CatalogSettings) -> Tables:
    """Return the process's catalog, of which the last eight stay open. Raises the client's error if the catalog can't
    be opened."""
    key = (settings.model_dump_json(), os.getpid())
    with _lock:
        if key not in _opened:
            _opened[key] = _open(settings)
        _opened.move_to_end(key)
        while len(_opened) > _MOST_OPEN:
            _close(*_opened.popitem(last=False))
        return _opened[key]


def check_catalog(settings: CatalogSettings) -> str:
    """Connect to a catalog without creating tables, and describe it. Raises ConfigurationError for an SQLite catalog in
    a missing or read-only folder, and SinkUnavailableError if another catalog can't be reached."""
    if settings.uri.startswith(_SQLITE):
        folder = os.path.dirname(settings.uri.removeprefix(_SQLITE))
        if not os.access(folder or ".", os.W_OK):
            raise ConfigurationError(
                "the folder of the SQLite catalog does not exist, or can't be written",
                path=folder,
                todo="create it, or correct sink.catalog.uri",
            )
        return f"catalog {settings.uri}"
    try:
        with closing(load_catalog(settings.name, **settings.properties, init_catalog_tables="false")) as catalog:
            if isinstance(catalog, SqlCatalog):
                catalog.engine.connect().close()
    except Exception as error:
        raise SinkUnavailableError(
            "the Iceberg catalog can't be reached",
            found=error_text(error),
            todo="check sink.catalog, the network and the credentials",
        ) from error
    return f"catalog {settings.name} responds"


def _close(key: tuple[str, int], tables: Tables) -> None:
    if key[1] == os.getpid():
        tables.catalog.close()


@atexit.register
def close_opened() -> None:
    with _lock:
        _known.cache_clear()
        while _opened:
            _close(*_opened.popitem())


def cached_tables(settings: CatalogSettings, namespace: Identifier, run_id: str) -> TableCache:
    """Return a namespace's table cache for a run, of which a process keeps four. Raises the errors of `opened`."""
    tables = opened(settings)
    with _lock:
        return _known(tables, namespace, run_id)


@lru_cache(4)  # for the branches of a run; a worker may outlive many runs
def _known(tables: Tables, namespace: Identifier, run_id: str) -> TableCache:
    return TableCache(tables, namespace)


def _open(settings: CatalogSettings) -> Tables:
    """Open a catalog with retries: if several processes create the tables of a database catalog, all but one fail."""
    for number in tries(_OPENING_TRIES, first_wait_s=0.2):
        try:
            catalog = load_catalog(settings.name, **settings.properties)
            return SqlTables(catalog) if settings.type == "sql" else RestTables(catalog)
        except Exception:
            if number == _OPENING_TRIES:
                raise
    raise AssertionError
