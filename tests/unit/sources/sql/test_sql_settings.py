"""The SQL source's settings: which values are rejected or pinned, and how the password is hidden."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from distcommit.app.job_file.load_job_file import load_config
from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.sources.query_checks import Query, queries_of
from distcommit.sources.sql.source import SqlSource
from tests.unit.sources.sql.sql_tables import source

NOT_OF_SNAPSHOTS = "must not be set with table_type: snapshot_only"
SECRET = "hunter2-hunter2"
SERVER = "postgresql://reader@db.example:5432/shop"


def test_sql_source_pickles_and_still_hides_its_password() -> None:
    sql = source(SERVER, password=SECRET)
    again = pickle.loads(pickle.dumps(sql))
    assert again == sql
    assert again.password.get_secret_value() == SECRET
    for shown in (repr(again), str(again), again.model_dump_json(), repr(again.model_dump())):
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"postgresql://reader:{SECRET}@db/shop", "must not contain a password"),
        (f"postgresql://reader@db/shop?password={SECRET}", "must not contain a password"),
        (f"postgresql://reader@db/shop?sslpassword={SECRET}", "must not contain a password"),
        ("postgresql://reader@db", "must name a database"),
        ("postgresql://reader@db:port/shop", "Port"),
        (f"mysql://reader:{SECRET}@db/shop", "must not contain a password"),
        ("mysql://reader@db", "must name a database: mysql://"),
        ("mysql+asyncmy://reader@db/shop", "must begin with"),
        ("postgresql+asyncpg://reader@db/shop", "must begin with"),
        ("oracle://reader@db/shop", "must begin with"),
        ("sqlite:///relative.db", "absolute path"),
        ("sqlite://", "absolute path"),
        ("sqlite:////file?mode=rwc", "absolute path"),
    ],
)
def test_rejected_urls_are_not_shown(url: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as failure:
        source(url)
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tables": []}, "at least one table"),
        ({"table_patterns": ["("]}, "must be a regular expression"),
        ({"overrides": {"gone": {"lookback": 1}}}, "overrides.gone must be the name of a table or query"),
        ({"overrides": {"t": {"look_back": 1}}}, "look_back"),
        ({"overrides": {"t": {"columns": ["a", "b", "a"]}}}, "must not be named twice"),
        ({"overrides": {"t": {"keys": ["a", "a"]}}}, "must not be named twice"),
        ({"lookback": -1}, "lookback"),
        ({"lookback": None}, "lookback"),
        ({"watermark": ""}, "watermark"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"records_per_work_unit": 0}, "records_per_work_unit"),
        (
            {"table_type": "snapshot_only", "watermark": "id"},
            NOT_OF_SNAPSHOTS,
        ),
        (
            {"table_type": "snapshot_only", "overrides": {"t": {"lookback": 0}}},
            NOT_OF_SNAPSHOTS,
        ),
        ({"table_type": "snapshot_only", "start": "latest"}, "must not be set with table_type: snapshot_only"),
        ({"table_type": "snapshot_only", "records_per_dataset": 5}, "must not be set with table_type: snapshot_only"),
        ({"table_type": "snapshot_append", "watermark": ""}, "must be set with table_type: snapshot_append"),
    ],
)
def test_invalid_sql_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        source(SERVER, **settings)


def test_queries_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries are requested once for each of thousands of datasets."""
    asked: list[Mapping[str, str]] = []

    def record_texts(texts: Mapping[str, str], dialect: str) -> dict[str, Query]:
        asked.append(texts)
        return queries_of(texts, dialect)

    monkeypatch.setattr("distcommit.sources.sql.source.queries_of", record_texts)
    names = [f"q{number}" for number in range(20)]
    overrides = {name: {"keys": ["id"]} for name in names}
    sql = source(SERVER, tables=[], queries=dict.fromkeys(names, "SELECT id FROM t"), overrides=overrides)
    assert all(sql.selects(name, "") and sql.extract_of(name).table == name for name in names)
    assert len(asked) == 1


def test_lookback_is_required() -> None:
    with pytest.raises(ValidationError, match="lookback"):
        SqlSource.model_validate({"type": "sql", "url": SERVER, "tables": ["t"], "watermark": "id"})


def test_database_and_schema_are_pinned_but_the_server_is_not() -> None:
    pins = source(SERVER, schema="sales").fixed_settings()
    assert {name: pin.value for name, pin in pins.items()} == {"database": "shop", "schema": "sales"}
    elsewhere = source("postgresql://other@replica/shop", schema="sales").fixed_settings()
    assert {name: FixedSetting(pin.value) for name, pin in elsewhere.items()} == {
        name: FixedSetting(pin.value) for name, pin in pins.items()
    }
    assert source("sqlite:////data/shop.db").fixed_settings()["database"].value == "/data/shop.db"


def test_password_file_is_read_when_connecting(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"job: j\nsource: {{type: sql, url: '{SERVER}', tables: [t], watermark: id, lookback: 0,"
        f" password: '${{file:{file}}}'}}\npaths: {{store: s, staging: t, output: o}}\n"
    )
    sql = load_config(job).source
    assert isinstance(sql, SqlSource)
    assert SECRET not in sql.password.get_secret_value()
    assert sql._database().password == SECRET
    assert SECRET not in repr(sql._database())
    file.unlink()
    with pytest.raises(ConfigurationError, match="secret's file"):
        sql.open()
    with pytest.raises(ValidationError, match="absolute path"):
        source(SERVER, password="${file:secret}")


def test_password_is_masked_in_driver_messages() -> None:
    from distcommit.sources.sql.database_connections import Database

    with pytest.raises(SourceError) as failure, Database(SERVER, SECRET).errors("t"):
        raise ValueError(f"no pg_hba entry for {SECRET}")
    assert "no pg_hba entry for ***" in str(failure.value)


def test_job_file_is_read_without_sqlalchemy() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from distcommit.sources.sql.source import SqlSource\n"
        f"s = SqlSource(type='sql', url='{SERVER}', tables=['t'], watermark='id', lookback=0)\n"
        "print(s.fixed_settings()['database'].value)\n"
        "try: s.open()\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("shop\nPACKAGE_MISSING: the SQL source needs SQLAlchemy")
    assert "[sql-source]" in done.stdout
