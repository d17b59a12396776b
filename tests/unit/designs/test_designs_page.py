"""Tests of the tables of the designs: their pages are up to date, and every name and test in them exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import distcommit
from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.app.job_file.job_config import JobConfig
from distcommit.cli.main import commands_by_name
from tests.unit.app.job_file.configuration_page import rows
from tests.unit.designs.designs_page import Row, load_pages, markdown_pages

ROOT = Path(distcommit.__file__).parents[1]
PACKAGES = "|".join(path.name for path in sorted(Path(distcommit.__file__).parent.iterdir()) if path.is_dir())
ROWS = [row for page in load_pages().values() for row in page.rows]


@pytest.mark.parametrize("path", markdown_pages(), ids=lambda path: path.stem)
def test_page_is_as_its_table_generates_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == markdown_pages()[path], "run python -m tests.unit.designs.designs_page"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.term)
def test_row_has_existing_names_an_existing_test_and_a_reason(row: Row) -> None:
    assert list(problems(row)) == []


def test_check_of_rows_reports_each_kind_of_problem() -> None:
    bad = "`core.work.Gone`, `commit.gone` and `distcommit gone`"
    assert list(problems(Row("x", "works", bad, "tests/unit/designs/test_designs_page.py::test_gone", "because"))) == [
        "core.work.Gone does not exist",
        "commit.gone is not a setting",
        "distcommit gone is not a command",
        "tests/unit/designs/test_designs_page.py::test_gone does not exist",
        "a row that works has no reason",
    ]
    assert list(problems(Row("x", "partly", "words"))) == [
        "no class, setting or command",
        "no test",
        "no reason",
    ]
    assert list(problems(Row("x", "no"))) == ["no reason"]


def problems(row: Row) -> Iterator[str]:
    """Yield the names and tests of a row that do not exist, and what it lacks."""
    quoted = re.findall(r"`([^`]+)`", row.where)
    sections = "|".join({name.partition(".")[0] for name in settings() if re.match(r"\w+\.", name)})
    named = 0
    for text in quoted:
        setting = text.partition(": ")[0]
        if re.fullmatch(rf"({sections})\.[\w.]+", setting) and not is_object(text):
            named += 1
            if setting not in settings():
                yield f"{setting} is not a setting"
        elif re.fullmatch(rf"({PACKAGES})\.[\w.]+", text):
            named += 1
            if not is_object(text):
                yield f"{text} does not exist"
        elif text.startswith("distcommit "):
            named += 1
            if not set(commands_by_name()) & {" ".join(text.split()[1:end]) for end in (2, 3)}:
                yield f"{text} is not a command"
    if row.status != "no":
        if not named:
            yield "no class, setting or command"
        if not row.test:
            yield "no test"
    if row.test and not is_test(row.test):
        yield f"{row.test} does not exist"
    if row.status == "works" and row.why:
        yield "a row that works has no reason"
    if row.status != "works" and not row.why:
        yield "no reason"


@cache
def settings() -> frozenset[str]:
    """Return the settings of the job file by their dotted names. All types of a section share its name."""
    kinds: tuple[Section, ...] = ("source", "sink", "fork")
    by_type = {
        f"{kind}.{row.setting}" for kind in kinds for name in types_of(kind) for row in rows(settings_class(kind, name))
    }
    return frozenset(by_type | {row.setting for row in rows(JobConfig)})


@cache
def is_object(dotted: str) -> bool:
    """Return whether this module, or object in a module, exists below `distcommit`."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(["distcommit", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            if not hasattr(found, name) and name not in getattr(found, "__annotations__", ()):
                return False
            found = getattr(found, name, None)
        return True
    return False


@cache
def top_names(path: Path) -> frozenset[str]:
    """Return the tests at the top of a file and in its classes, without running it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return frozenset(name for name in names if name.lower().startswith("test"))


def is_test(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and name in top_names(ROOT / path)
