"""Sources and sinks by the type that a job file names: a package is enough to add one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import distcommit.sinks
from distcommit.app.job_file import built_in
from distcommit.core.errors import ConfigurationError
from distcommit.sinks.files.sink import FileSink


@pytest.fixture
def another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `another` beside the built-in sinks, which no other file knows."""
    folder = tmp_path / "another"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A sink."""\n\nSETTINGS = "sink:Another"\n')
    (folder / "sink.py").write_text(
        "from typing import Literal\n\nfrom distcommit.sinks.files.sink import FileSink\n\n\n"
        'class Another(FileSink):\n    type: Literal["another"]  # type: ignore[assignment]\n    limit: int = 3\n'
    )
    monkeypatch.setattr(distcommit.sinks, "__path__", [*distcommit.sinks.__path__, str(tmp_path)])
    built_in.types_of.cache_clear()
    yield
    built_in.types_of.cache_clear()
    built_in.settings_class.cache_clear()
    for name in [name for name in sys.modules if name.startswith("distcommit.sinks.another")]:
        del sys.modules[name]


SINKS = ("console", "delta", "files", "iceberg", "kafka", "mariadb", "postgresql", "python", "sqlite")


def test_what_there_is() -> None:
    assert built_in.types_of("source") == ("files", "kafka", "micro_batch", "python", "rest", "spark", "sql")
    assert built_in.types_of("sink") == SINKS


def test_each_is_named_as_its_package_and_is_of_its_section() -> None:
    for section in ("source", "sink"):
        for name in built_in.types_of(section):
            found = built_in.settings_class(section, name)
            assert name in str(found.model_fields["type"].annotation)


@pytest.mark.usefixtures("another")
def test_a_package_is_all_that_a_new_type_takes() -> None:
    assert built_in.types_of("sink") == ("another", *SINKS)
    found = built_in.validated("sink", {"type": "another", "limit": 5, "format": "avro"})
    assert (type(found).__name__, found.name, found.limit, found.format) == ("Another", "another", 5, "avro")
    assert isinstance(found, FileSink)


def test_a_second_package_of_a_name_is_refused_and_both_are_named(another: None, tmp_path: Path) -> None:
    second = tmp_path / "second"
    (second / "another").mkdir(parents=True)
    (second / "another" / "__init__.py").write_text('"""Another sink, of the same name."""\n')
    distcommit.sinks.__path__.append(str(second))
    with pytest.raises(ConfigurationError, match="two sinks have the name 'another'") as caught:
        built_in.validated("sink", {"type": "files"})
    assert caught.value.found == f"one in {tmp_path} and one in {second}"


@pytest.mark.usefixtures("another")
def test_a_place_that_is_named_twice_is_one_place() -> None:
    distcommit.sinks.__path__.append(distcommit.sinks.__path__[0])
    assert built_in.types_of("sink") == ("another", *SINKS)


@pytest.mark.parametrize(("value", "found"), [({}, "none"), ({"type": "pyton"}, "pyton"), ({"type": None}, "none")])
def test_a_type_that_there_is_not_is_refused_with_those_there_are(value: dict[str, object], found: str) -> None:
    with pytest.raises(ValueError, match=f"one of files, kafka, micro_batch, python, rest, spark, sql; found {found}"):
        built_in.validated("source", value)
