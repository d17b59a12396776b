"""The Iceberg sink keeps what a sink has to keep, with a catalog in SQLite, in PostgreSQL and behind REST."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlparse

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from distcommit.model.committer import CommitRequest
from distcommit.sinks.committer_sink import CommitterSink
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.table_names import plain_name
from distcommit.testing.contracts import SinkContract

_DATASETS = {plain_name(urn): urn for urn in ("a", "b", "c", "b/ü")}


class _OnIceberg(SinkContract):
    """A table for each dataset."""

    def catalog(self, place: Path) -> dict[str, str]:
        """The catalog's settings, another one for each place."""
        return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}

    def make_sink(self, place: Path) -> CommitterSink:
        return IcebergSink.model_validate({"type": "iceberg", "catalog": self.catalog(place), "namespace": "ingest"})

    def client(self, place: Path) -> Catalog:
        """The catalog by pyiceberg alone."""
        return load_catalog("default", **self.catalog(place))

    def observe(self, place: Path) -> Sequence[tuple[str, int]]:
        client = self.client(place)
        if not client.namespace_exists("ingest"):
            return []
        return [
            (_DATASETS[name], offset)
            for _, name in client.list_tables("ingest")
            for offset in client.load_table(("ingest", name)).scan().to_arrow()["offset"].to_pylist()
        ]

    def lose(self, place: Path, request: CommitRequest) -> bool:
        Path(urlparse(request.infos[-1]["files"][0]["path"]).path).unlink()
        return True


class TestSqliteCatalog(_OnIceberg):
    def cut_off(self, place: Path) -> bool:
        import sqlite3

        with sqlite3.connect(place / "catalog.db") as db:
            db.execute("ALTER TABLE iceberg_tables RENAME TO elsewhere")
        db.close()
        return True


class TestOneTable(TestSqliteCatalog):
    """All datasets in one table: rows do not say whose they are, so the values do."""

    def make_sink(self, place: Path) -> CommitterSink:
        return IcebergSink.model_validate(
            {"type": "iceberg", "catalog": self.catalog(place), "namespace": "ingest", "table": "events"}
        )

    def observe(self, place: Path) -> Sequence[tuple[str, int]]:
        pytest.skip("rows of one table do not say which dataset they are of")
