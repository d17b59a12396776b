"""The text of a query: which ones are rejected before reading, and which changes make it another query."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from distcommit.app.job_file.load_job_file import load_config
from distcommit.core.errors import ConfigurationError
from distcommit.sources.query_checks import Query
from tests.unit.sources.sql.sql_tables import source

DIALECTS = ("postgresql", "mysql", "sqlite", "spark")
GOOD = [
    "SELECT id FROM t",
    "with x as (select 1 as id) select id from x",
    "(SELECT id FROM t) UNION ALL (SELECT id FROM u)",
    "/* first */ SELECT id -- in between; )\n FROM t",
    "SELECT ';' AS \"a;b\", '--' AS c, '/*' AS d, '(' AS e, 'it''s' AS f FROM t",
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", GOOD)
def test_query_is_sent_unchanged(text: str, dialect: str) -> None:
    assert Query.of(text, dialect).body == text.removeprefix("/* first */ ")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "end", [";", " ;\n", "; -- all of them", " -- all of them;", ";;", "\n/* all */ ; /* of them */"]
)
def test_trailing_semicolons_and_comments_are_removed(end: str, dialect: str) -> None:
    assert Query.of(f"SELECT id FROM t{end}", dialect).body == "SELECT id FROM t"


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgresql", "SELECT $$;)$$ AS a, $x$ $$;( $x$ AS b, E'\\';(' AS c, a$b AS d FROM t"),
        ("postgresql", "SELECT a::text, data ? 'key', a[1:2] /* a /* nested ; */ ( */ FROM t WHERE s LIKE '%'"),
        ("mysql", "SELECT `;`, '\\';(', \"\\\";(\", 5--3 AS n # ; (\n FROM t"),
        ("mysql", "SELECT /*! SQL_NO_CACHE */ id, @@version FROM t"),
        ("sqlite", "SELECT [;(], `;)` FROM t"),
        ("spark", "SELECT `;`, '\\';(', r'\\', \"\\\";(\", a::int /* a /* nested ; */ ( */ FROM t"),
    ],
)
def test_quotes_and_comments_are_parsed_by_the_database_s_dialect(dialect: str, text: str) -> None:
    assert Query.of(text, dialect).body == text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with SELECT or WITH, not with nothing"),
        (" -- SELECT\n;", "not with nothing"),
        ("DELETE FROM t", "not with DELETE"),
        ("(INSERT INTO t VALUES (1))", "not with INSERT"),
        ("TABLE t", "not with TABLE"),
        ("SELECT 1; DROP TABLE t", "must be one statement, and has several"),
        ("SELECT 1 AS id) AS q, (SELECT 2", r"a \) without a \("),
        ("SELECT id FROM t)", r"a \) without a \("),
        ("SELECT (id FROM t", r"a \( without a \)"),
        ("SELECT 'a FROM t", 'not closed, from "\'a FROM t" on'),
        ('SELECT "a FROM t', "not closed"),
        ("SELECT id FROM t /* where", "not closed"),
    ],
)
def test_text_that_is_not_a_query_is_rejected(text: str, message: str, dialect: str) -> None:
    with pytest.raises(ValueError, match=message):
        Query.of(text, dialect)


@pytest.mark.parametrize(
    ("dialect", "text", "mark"),
    [
        ("postgresql", "SELECT id FROM t WHERE s = $1", r"\$1"),
        ("mysql", "SELECT id FROM t WHERE s = ?", r"\?"),
        ("sqlite", "SELECT id FROM t WHERE s = ?", r"\?"),
        ("spark", "SELECT id FROM t WHERE s = ?", r"\?"),
        ("sqlite", "SELECT id FROM t WHERE s = ?1", r"\?1"),
        ("sqlite", "SELECT id FROM t WHERE s = :low", ":low"),
        ("sqlite", "SELECT id FROM t WHERE s = @low", "@low"),
        ("sqlite", "SELECT id FROM t WHERE s = $low", r"\$low"),
    ],
)
def test_placeholder_without_a_value_is_rejected(dialect: str, text: str, mark: str) -> None:
    """The placeholder would receive a bound of the range that is read."""
    with pytest.raises(ValueError, match=f"must not have a placeholder, {mark};"):
        Query.of(text, dialect)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("FOR UPDATE", "FOR UPDATE"),
        ("for\nupdate of t nowait", "for update"),
        ("FOR /* read */ SHARE SKIP LOCKED", "FOR SHARE"),
        ("LOCK IN SHARE MODE", "LOCK IN SHARE MODE"),
        ("/*!50000FOR UPDATE*/", "FOR UPDATE"),
        ("/*M! FOR UPDATE */", "FOR UPDATE"),
        ("INTO OUTFILE '/tmp/t'", "INTO"),
        ("INTO @one", "INTO"),
    ],
)
def test_query_that_locks_or_writes_in_a_read_only_transaction_is_rejected(end: str, message: str) -> None:
    """For MySQL and MariaDB. PostgreSQL rejects such statements in a read-only transaction, and SQLite does not have
    them."""
    for text in (f"SELECT id FROM t {end}", f"SELECT id FROM (SELECT id FROM t {end}) AS u"):
        with pytest.raises(ValueError, match=f"has {message}: it must not lock rows"):
            Query.of(text, "mysql")
    with pytest.raises(ValidationError, match=r"queries\.joined has FOR UPDATE: it must not lock"):
        source("mysql://db/shop", queries={"joined": "SELECT id FROM t FOR UPDATE"})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("id IN (SELECT id FROM u FOR UPDATE)", "has FOR UPDATE: it must not lock rows"),
        ("EXISTS (SELECT 1 FROM u /*!50000 LOCK IN SHARE MODE */)", "has LOCK IN SHARE MODE"),
        ("id > 1) OR (1 = 1", r"has a \) without a \("),
        ("id > 1)", r"has a \) without a \("),
        ("(id > 1", r"has a \( without a \)"),
        ("id > 1; DROP TABLE t", "must be one statement, and has several"),
        ("id > ?", r"must not have a placeholder, \?;"),
        ("s = 'a", "has a quote, or a comment, that is not closed"),
        (" -- id > 1", "must not be empty"),
    ],
)
def test_condition_is_validated_as_a_query(where: str, message: str) -> None:
    with pytest.raises(ValidationError, match=rf"overrides\.t\.where {message}"):
        source("mysql://db/shop", tables=["t"], overrides={"t": {"where": where}})


def test_any_reading_condition_is_accepted() -> None:
    for where in ("", "s <> 'FOR UPDATE' -- that one", "`into` = 1 AND id IN (SELECT id FROM u)"):
        source("mysql://db/shop", tables=["t"], overrides={"t": {"where": where}})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT t.into, t . into, `for update`, 'FOR UPDATE' AS a, \"INTO\" AS b FROM t -- FOR UPDATE",
        "SELECT substring(s FROM 1 FOR 3) AS s, `for`, `update` FROM t USE INDEX FOR ORDER BY (i) # FOR UPDATE",
        "SELECT id, for_update, into_t FROM t FOR SYSTEM_TIME AS OF '2024-01-01' /* LOCK IN SHARE MODE */ WHERE id > 1",
    ],
)
def test_query_that_only_resembles_a_locking_one_is_accepted(text: str) -> None:
    assert Query.of(text, "mysql").body.startswith("SELECT")


def test_space_and_comments_do_not_change_a_query_s_id() -> None:
    query = Query.of("SELECT id, ' a  b' AS s FROM t", "postgresql")
    assert query.id == "167309bca03b"  # stored positions contain it
    for same in ("SELECT id,\n  ' a  b' AS s -- s\nFROM t;", "/* t */SELECT id , ' a  b' AS s FROM\tt"):
        assert Query.of(same, "postgresql").id == query.id
    for other in ("SELECT id, ' a b' AS s FROM t", "SELECT id, ' a  b' AS s FROM t2", "SELECT DISTINCT id FROM t"):
        assert Query.of(other, "postgresql").id != query.id


def test_comment_that_mysql_executes_is_part_of_the_query() -> None:
    one, other = (Query.of(f"SELECT id FROM t /*! WHERE id < {end} */", "mysql") for end in (1, 2))
    assert one.id != other.id


def test_error_of_an_invalid_query_names_its_setting() -> None:
    with pytest.raises(ValidationError, match=r"queries\.joined must begin with SELECT or WITH, not with UPDATE"):
        source("postgresql://db/shop", queries={"good": "SELECT 1 AS id", "joined": "UPDATE t SET id = 1"})


def test_table_and_query_of_one_name_are_rejected() -> None:
    queries = {"t": "SELECT 1 AS id"}
    with pytest.raises(ValidationError, match=r"queries\.t must have another name than each table"):
        source("postgresql://db/shop", tables=["t"], queries=queries)
    assert "t" in source("postgresql://db/shop", tables=["t"], exclude=["t"], queries=queries).selection


def test_duplicate_query_name_is_rejected(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: j\nsource:\n  type: sql\n  url: sqlite:////db\n  watermark: id\n  lookback: 0\n  queries:\n"
        "    a: SELECT id FROM t\n    b: SELECT id FROM t\n    a: SELECT id FROM u\n"
        "paths: {store: s, staging: t, output: o}\n"
    )
    with pytest.raises(ConfigurationError, match=r":10:5: .*the key 'a' is already in line 8"):
        load_config(job)
    job.write_text(job.read_text().replace("    a: SELECT id FROM u\n", ""))
    load_config(job)
