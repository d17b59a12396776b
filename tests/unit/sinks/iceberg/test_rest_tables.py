"""A REST catalog that fails for some tables: the others are read."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError, ServerError

from distcommit.sinks.iceberg.catalog.rest_tables import RestTables


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def tables_of(errors: dict[str, Exception], calls: Counter[str], fails: int = 99) -> RestTables:
    """Return tables of a catalog in which each table is its name; the given errors occur `fails` times."""

    def load_table(name: tuple[str, ...]) -> str:
        calls[name[-1]] += 1
        if name[-1] in errors and calls[name[-1]] <= fails:
            raise errors[name[-1]]
        return name[-1]

    tables = RestTables.__new__(RestTables)
    tables._rest = SimpleNamespace(load_table=load_table)  # type: ignore[assignment]
    return tables


def test_permanent_error_of_one_table_does_not_affect_other_tables() -> None:
    broken, strange = ServerError("its metadata is gone"), ValueError("a type that is not known")
    calls = Counter[str]()
    tables = tables_of({"broken": broken, "strange": strange, "gone": NoSuchTableError("gone")}, calls)
    results: dict[Any, Any] = {**tables.read([("n", name) for name in ("a", "broken", "gone", "strange", "b")])}
    assert results == {("n", "a"): "a", ("n", "broken"): broken, ("n", "strange"): strange, ("n", "b"): "b"}
    assert calls["broken"] == 3


def test_transient_catalog_error_is_retried() -> None:
    tables = tables_of({"a": ServerError("starting")}, Counter(), fails=2)
    results: dict[Any, Any] = {**tables.read([("n", "a")])}
    assert results == {("n", "a"): "a"}


def test_unreachable_catalog_raises_instead_of_failing_each_table() -> None:
    with pytest.raises(ConnectionError):
        tables_of({"a": ConnectionError("no route")}, Counter()).read([("n", "a"), ("n", "b")])
