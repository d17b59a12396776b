"""Sources and sinks by type: a new package alone adds a new type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import distcommit.sinks
from distcommit.app.job_file import built_in_types
from distcommit.core.errors import ConfigurationError
from distcommit.sinks.files.sink import FileSink


@pytest.fixture
def another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a package `another` beside the built-in sinks, which no other file knows."""
    folder = tmp_path / "another"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A sink."""\n\nSETTINGS = "sink:Another"\n')
    (folder / "sink.py").write_text(
        "from typing import Literal\n\nfrom distcommit.sinks.files.sink import FileSink\n\n\n"
        'class Another(FileSink):\n    type: Literal["another"]  # type: ignore[assignment]\n    limit: int = 3\n'
    )
    monkeypatch.setattr(distcommit.sinks, "__path__", [*distcommit.sinks.__path__, str(tmp_path)])
    built_in_types.types_of.cache_clear()
    yield
    built_in_types.types_of.cache_clear()
    built_in_types.settings_class.cache_clear()
    for name in [name for name in sys.modules if name.startswith("distcommit.sinks.another")]:
        del sys.modules[name]


SINKS = ("console", "delta", "files", "iceberg", "kafka", "mariadb", "postgresql", "python", "sqlite")


def test_built_in_source_and_sink_types_are_listed() -> None:
    assert built_in_types.types_of("source") == ("files", "kafka", "micro_batch", "python", "rest", "spark", "sql")
    assert built_in_types.types_of("sink") == SINKS


def test_type_setting_of_each_class_is_the_name_of_its_package() -> None:
    for section in ("source", "sink"):
        for name in built_in_types.types_of(section):
            settings = built_in_types.settings_class(section, name)
            assert name in str(settings.model_fields["type"].annotation)


@pytest.mark.usefixtures("another")
def test_package_in_the_sinks_folder_adds_a_sink_type() -> None:
    assert built_in_types.types_of("sink") == ("another", *SINKS)
    sink = built_in_types.validated("sink", {"type": "another", "limit": 5, "format": "avro"})
    assert (type(sink).__name__, sink.name, sink.limit, sink.format) == ("Another", "another", 5, "avro")
    assert isinstance(sink, FileSink)


def test_second_package_of_one_name_is_refused_and_both_folders_are_named(another: None, tmp_path: Path) -> None:
    second = tmp_path / "second"
    (second / "another").mkdir(parents=True)
    (second / "another" / "__init__.py").write_text('"""Another sink, of the same name."""\n')
    distcommit.sinks.__path__.append(str(second))
    with pytest.raises(ConfigurationError, match="two sinks have the name 'another'") as caught:
        built_in_types.validated("sink", {"type": "files"})
    assert caught.value.found == f"one in {tmp_path} and one in {second}"


@pytest.mark.usefixtures("another")
def test_folder_listed_twice_in_the_package_path_counts_once() -> None:
    distcommit.sinks.__path__.append(distcommit.sinks.__path__[0])
    assert built_in_types.types_of("sink") == ("another", *SINKS)


@pytest.mark.parametrize(("value", "found"), [({}, "none"), ({"type": "pyton"}, "pyton"), ({"type": None}, "none")])
def test_unknown_type_is_refused_with_the_list_of_types(value: dict[str, object], found: str) -> None:
    with pytest.raises(ValueError, match=f"one of files, kafka, micro_batch, python, rest, spark, sql; found {found}"):
        built_in_types.validated("source", value)
