"""Settings of `source.transform`: what is rejected before Spark starts, and which changes stop a dataset."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit.app.checks.job_check import check_file
from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.core.interfaces.target_identity import Target
from distcommit.sources.spark.source import SparkSource

JOINED = "SELECT * FROM source JOIN regions USING (region)"
PATHS = {name: name for name in ("store", "staging", "output")}
_HERE = "tests.unit.sources.spark.test_transform"


def at_least(frame: Any, minimum: int, column: str = "id") -> Any:
    return frame.filter(frame[column] >= minimum)


def settings(transform: dict[str, Any], **changed: Any) -> SparkSource:
    source = {"type": "spark", "format": "parquet", "datasets": {"t": {}}, "transform": transform, **changed}
    return SparkSource.model_validate(source)


def by_ranges(transform: dict[str, Any]) -> SparkSource:
    return settings({"row_wise": True, **transform}, watermark="id", lookback=0)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({}, "must have either sql or function"),
        ({"sql": JOINED, "function": "m:f"}, "must have either sql or function"),
        ({"sql": JOINED, "options": {"a": 1}}, "must not be set without function"),
        ({"function": "m:f", "tables": {"regions": {}}}, "must not be set without sql"),
        ({"sql": JOINED, "tables": {"SOURCE": {}}}, "and not source"),
        ({"sql": JOINED, "tables": {"a b": {}}}, "must be a name of letters, digits and _"),
        ({"sql": "SELECT * FROM regions"}, "must read the table source"),
        ({"sql": "DROP TABLE source"}, "must begin with SELECT or WITH, not with DROP"),
        ({"sql": "WITH s AS (SELECT * FROM source) INSERT INTO t SELECT * FROM s"}, "must have SELECT after WITH"),
        ({"sql": "WITH s AS (SELECT * FROM source), t (a) AS (SELECT 1) delete FROM t"}, "not DELETE"),
        ({"sql": "WITH s AS (SELECT * FROM source) FROM s INSERT INTO t SELECT *"}, "not FROM"),
        ({"sql": "SELECT '${spark.app.name}' FROM source"}, r"must not contain \$\{"),
        ({"function": "m:f", "options": {"a": "${file:b}"}}, "by an absolute path"),
        ({"sql": JOINED, "tables": {"regions": {"password": "${file:b}"}}}, "by an absolute path"),
        ({"sql": "SELECT * FROM source; DROP TABLE source"}, "must be one statement"),
        ({"sql": "SELECT 'a FROM source"}, "has a quote, or a comment, that is not closed"),
        ({"sql": "SELECT (a FROM source"}, r"without a \)"),
    ],
)
def test_invalid_transform_is_rejected(transform: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(transform)


def test_transform_of_new_rows_must_be_declared_row_wise() -> None:
    with pytest.raises(ValueError, match=r"must be true with source\.watermark.*set sink\.publish to replace"):
        settings({"sql": "SELECT * FROM source"}, watermark="id", lookback=0)


def test_row_wise_sql_may_explode_a_list_into_several_columns() -> None:
    assert by_ranges({"sql": "SELECT id, x FROM source LATERAL VIEW posexplode(list) AS n, x"}).transform is not None


@pytest.mark.parametrize(
    "sql",
    [
        JOINED,
        "SELECT * FROM source a JOIN source b USING (id)",
        "SELECT * FROM source WHERE id > (SELECT max(id) FROM source)",
    ],
)
def test_row_wise_sql_must_read_one_table_once(sql: str) -> None:
    assert settings({"sql": sql}).transform is not None
    with pytest.raises(ValueError, match="must read only the table source, and only once, with row_wise"):
        by_ranges({"sql": sql})


SQL = {"sql": "SELECT id, upper(s) AS s FROM source WHERE s LIKE 'a%'"}
FUNCTION = {"function": "m:f", "options": {"minimum": 1}}


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (SQL, {"sql": "/* names */ SELECT id,  upper(s) AS s\nFROM source WHERE s LIKE 'a%';"}, True),
        (SQL, {"sql": SQL["sql"].replace("a%", "b%")}, False),
        (FUNCTION, FUNCTION, True),
        (FUNCTION, {**FUNCTION, "options": {"minimum": 2}}, False),
        (FUNCTION, {**FUNCTION, "function": "m:g"}, False),
    ],
)
def test_changed_transform_is_another_reader(before: dict[str, Any], after: dict[str, Any], is_same: bool) -> None:
    reader = by_ranges(before).reader_of("t")
    assert (by_ranges(after).reader_of("t") == reader) is is_same
    without = SparkSource.model_validate({"type": "spark", "format": "parquet", "datasets": {"t": {}}})
    assert without.reader_of("t") != reader


def test_target_that_a_table_of_the_transform_reads_is_recognized(tmp_path: Path) -> None:
    target = Target("folder", str(tmp_path / "out"))
    assert not settings({"sql": JOINED}).reads(target)
    assert settings({"sql": JOINED, "tables": {"regions": {"path": str(tmp_path / "out")}}}).reads(target)


def test_table_has_the_options_and_the_password_of_the_source() -> None:
    source = settings({"sql": JOINED}, options={"url": "u", "dbtable": "a"}, password="s3cret")
    assert source.options_with({"dbtable": "b"}) == {"url": "u", "password": "s3cret", "dbtable": "b"}


def test_query_after_with_may_name_columns_like_statements() -> None:
    sql = "WITH s AS (SELECT max(update) FROM source) SELECT s.insert, (1) AS set FROM s"
    assert settings({"sql": sql}).transform is not None


def test_secret_files_of_tables_and_options_are_read(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("s3cret\n")
    file = f"${{file:{tmp_path}/p}}"
    source = settings({"sql": JOINED, "tables": {"regions": {"password": file}}}, options={"token": file})
    assert source.transform is not None
    assert source.options_with(source.transform.tables["regions"]) == {"password": "s3cret", "token": "s3cret"}
    assert source.reader_options("t") == {"token": "s3cret"}


def test_digest_of_options_does_not_depend_on_their_order() -> None:
    options = {"day": date(2024, 5, 1), "a": 1}
    readers = {
        by_ranges({"function": "m:f", "options": dict(pairs)}).reader_of("t")
        for pairs in (options.items(), reversed(options.items()))
    }
    assert len(readers) == 1
    with pytest.raises(SourceError, match="have no digest"):
        by_ranges({"function": "m:f", "options": {"day": {1: 1, "a": 1}}}).reader_of("t")


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("no.such.module:f", {}, "No module named 'no'"),
        (f"{_HERE}:absent", {}, "no attribute 'absent'"),
        (f"{_HERE}:JOINED", {}, "is not a callable object"),
        (f"{_HERE}:at_least", {}, "missing a required argument: 'minimum'"),
        (f"{_HERE}:at_least", {"minimum": 1, "maximum": 2}, "got an unexpected keyword argument 'maximum'"),
        (_HERE, {}, "no attribute ''"),
    ],
)
def test_unusable_function_is_reported_by_check(function: str, options: dict[str, Any], message: str) -> None:
    source = settings({"function": function, "options": options})
    with pytest.raises(ConfigurationError, match=message) as raised:
        source.check_code()
    assert raised.value.id == "CUSTOM_CLASS_INVALID"


def test_check_without_connections_imports_the_function(tmp_path: Path) -> None:
    source = {"type": "spark", "format": "parquet", "datasets": {"t": {}}, "transform": {"function": "no.module:f"}}
    job = {"job": "j", "source": source, "sink": {"publish": "replace"}, "paths": PATHS}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    (problem,) = check_file(tmp_path / "job.yaml", connect=False).problems
    assert "the function of source.transform cannot be used" in problem.text


def test_error_of_a_reader_hides_its_password() -> None:
    source = settings({"sql": JOINED}, password="s3cret")
    assert source.without_password("login of r with s3cret", "t") == "login of r with ***"


def test_function_is_loaded_with_its_options(tmp_path: Path) -> None:
    (tmp_path / "column").write_text("other\n")
    options = {"minimum": 2, "column": f"${{file:{tmp_path}/column}}"}
    source = settings({"function": f"{_HERE}:at_least", "options": options})
    source.check_code()
    assert source.transform is not None
    assert source.transform.load().keywords == {"minimum": 2, "column": "other"}  # type: ignore[attr-defined]
