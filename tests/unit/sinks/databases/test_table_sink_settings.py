"""Settings of sinks that write rows to tables: rejected values, pins and table names."""

from __future__ import annotations

from typing import Any

import pytest

from distcommit.sinks.mariadb.sink import MariadbSink
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.sinks.sqlite.sink import SqliteSink

SERVER = "mariadb://loader@db.example:3307/shop"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "mariadb://loader:secret@db/shop"}, "must not contain a password"),
        ({"url": "mariadb://loader@db"}, "must name a database"),
        ({"url": "postgresql://loader@db/shop"}, "must begin with mariadb://"),
        ({"url": "mariadb:///shop"}, "must begin with mariadb://"),
        ({"url": f"{SERVER}?local_infile=1"}, "option 'local_infile' is unknown"),
        ({"mode": "upsert"}, "keys must be set with mode: upsert"),
        ({"mode": "upsert", "keys": ["a"], "tags": True}, "tags must not be true with mode: upsert"),
        ({"mode": "replace", "table": "all"}, "tags must be true with mode: replace"),
        ({"table": "{topic}"}, "{dataset} may stand once"),
    ],
)
def test_invalid_section_is_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MariadbSink.model_validate({"type": "mariadb", "url": SERVER, **settings})


def test_target_is_pinned_and_shown_without_user_and_password() -> None:
    sink = MariadbSink.model_validate({"type": "mariadb", "url": f"{SERVER}?ssl_ca=/ca.pem", "password": "secret"})
    assert {name: pin.value for name, pin in sink.fixed_settings().items()} == {
        "database": "shop",
        "table": "{dataset}",
    }
    assert sink.published_in("orders", "/output") == "table shop.orders of db.example:3307"
    file = SqliteSink.model_validate({"type": "sqlite", "path": "/data/rows.db", "table": "all"})
    assert {name: pin.value for name, pin in file.fixed_settings().items()} == {"file": "rows.db", "table": "all"}
    assert file.published_in("orders", "/output") == "table all of /data/rows.db"


@pytest.mark.parametrize("two_phase", [False, True])
def test_datasets_that_share_a_table_are_a_commit_group(two_phase: bool) -> None:
    section = {"type": "mariadb", "url": SERVER, "two_phase": two_phase}
    shared = MariadbSink.model_validate({**section, "table": "All"})
    assert shared.grouped_by == "table All"
    assert {shared.commit_group(urn) for urn in ("orders", "payments")} == {shared.table_of("any")}
    apart = MariadbSink.model_validate(section)
    assert (apart.grouped_by, apart.commit_group("orders")) == ("dataset", "orders")


@pytest.mark.parametrize("urn", ["distcommit_ledger", "distcommit_prepared"])
def test_dataset_is_never_mapped_to_a_ledger_table(urn: str) -> None:
    sink = PostgresqlSink.model_validate({"type": "postgresql", "url": "postgresql://me@server/shop"})
    assert sink.table_of(urn) != urn


@pytest.mark.parametrize("urn", ["Orders", "\U0001f600", "x" * 65, "distcommit_ledger", "distcommit_prepared", "a "])
def test_name_that_the_database_would_change_ends_in_a_hash(urn: str) -> None:
    sink = MariadbSink.model_validate({"type": "mariadb", "url": SERVER})
    name = sink.table_of(urn)
    assert name == name.lower()
    assert len(name.encode()) <= 64
    assert max(name) <= "\uffff"
    assert name.rpartition("_")[2] != urn
    assert sink.table_of(name) != name, "a dataset of that name has another table"
