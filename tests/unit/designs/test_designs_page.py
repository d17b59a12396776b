"""Tests of the tables of the designs: their pages are up to date, and every name and test in them exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

import distcommit
from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.app.job_file.job_config import JobConfig
from distcommit.cli.main import commands_by_name
from tests.unit.app.job_file.configuration_page import Row as Setting
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


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SourceState.previous_work_units", ""),
        ("SourceState.gone", "SourceState.gone does not exist"),
        ("Gone.previous_work_units", "Gone.previous_work_units does not exist"),
        ("JobGone", "JobGone does not exist"),
        ("Job.run(observer)", ""),
        ("Job.gone(observer)", "Job.gone does not exist"),
        ("anywhere", ""),
        ("gone", "gone is not a setting, and not a member of the row's names"),
        ("gone: drop", "gone is not a setting, and not a member of the row's names"),
        ("publish: replace", ""),
        ("--settings", ""),
        ("--gone", "no command of the row has --gone"),
        ("distcommit runs JOB.yaml EPOCH --work-units", ""),
        ("distcommit runs JOB.yaml --gone", "no command of the row has --gone"),
        ("MSCK REPAIR TABLE", ""),
        ("state.store.*", ""),
    ],
)
def test_check_of_rows_includes_names_without_a_package_and_options(name: str, problem: str) -> None:
    where = f"`core.interfaces.source.SourceState`, `distcommit runs`, `{name}`"
    assert list(problems(Row("x", "no", where, why="because"))) == ([problem] if problem else [])


def problems(row: Row) -> Iterator[str]:
    """Yield the names and tests of a row that do not exist, and what it lacks."""
    quoted = re.findall(r"`([^`]+)`", row.where)
    named = [text for text in quoted if is_full_name(text)]
    for text in quoted:
        if problem := problem_of_name(text, named):
            yield problem
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


def is_full_name(text: str) -> bool:
    """Return whether a text is a setting, an object with its package, or a command, whether or not it exists."""
    return is_command(text) or re.fullmatch(rf"({sections()}|{PACKAGES})\.[\w.]+(: .+)?", text) is not None


def is_command(text: str) -> bool:
    return text.startswith("distcommit ")


def problem_of_name(text: str, named: Sequence[str]) -> str:
    """Return why a quoted name does not exist; empty if it does, or if it is not a name of this project.

    Args:
        text: the quoted text.
        named: full names of the row, which have the words and options of the row.
    """
    name = text.partition(": ")[0].partition("(")[0]
    options = re.findall(r"--[\w-]+", text)
    if options or is_command(text):
        commands = [text] if is_command(text) else named
        missing = [option for option in options if not has_option(commands, option)]
        if is_command(text) and not commands_of(text):
            return f"{text} is not a command"
        return f"no command of the row has {', '.join(missing)}" if missing else ""
    if is_full_name(name) and name not in settings() and not is_object(name):
        return f"{name} is not a setting" if re.match(rf"({sections()})\.", name) else f"{name} does not exist"
    if re.fullmatch(r"[A-Z]\w*[a-z](\.\w+)*", name) and not is_class(name):
        return f"{name} does not exist"
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in words() and not any(name in members(of) for of in named):
        return f"{name} is not a setting, and not a member of the row's names"
    return ""


def commands_of(text: str) -> set[str]:
    return set(commands_by_name()) & {" ".join(text.split()[1:end]) for end in (2, 3)}


def has_option(texts: Sequence[str], option: str) -> bool:
    """Return whether one of the commands has an option."""
    commands = {name for text in texts if is_command(text) for name in commands_of(text)}
    return any(option in parameter.opts for name in commands for parameter in commands_by_name()[name].params)


def is_class(name: str) -> bool:
    """Return whether a class of the package has this name, or this class and member."""
    return any(is_object(f"{module}.{name}") for module in modules_of_classes().get(name.partition(".")[0], ()))


@cache
def modules_of_classes() -> dict[str, list[str]]:
    """Return the modules of each class of the package, without importing them."""
    package = Path(distcommit.__file__).parent
    modules: dict[str, list[str]] = {}
    for path in package.rglob("*.py"):
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            modules.setdefault(name, []).append(module)
    return modules


@cache
def settings() -> frozenset[str]:
    """Return the settings of the job file by their dotted names. All types of a section share its name."""
    return frozenset(row.setting for row in setting_rows())


@cache
def sections() -> str:
    """Return the sections of the job file that have settings, as a pattern."""
    return "|".join({name.partition(".")[0] for name in settings() if re.match(r"\w+\.", name)})


@cache
def words() -> frozenset[str]:
    """Return the last names of all settings, with those of constructs, and the values that settings name."""
    kinds = get_args(Section)
    types = {name for kind in kinds for name in types_of(kind)}
    constructs = [row for kind in kinds for name in types_of(kind) for row in rows(settings_class(kind, name))]
    values = {word for row in (*constructs, *setting_rows()) for word in re.findall(r"\w+", row.kind)}
    return frozenset({row.setting.split(".")[-1] for row in (*constructs, *setting_rows())} | types | values)


@cache
def setting_rows() -> tuple[Setting, ...]:
    kinds: tuple[Section, ...] = ("source", "sink", "fork")
    by_type = [
        Setting(f"{kind}.{row.setting}", row.kind, row.default, row.meaning)
        for kind in kinds
        for name in types_of(kind)
        for row in rows(settings_class(kind, name))
    ]
    return (*by_type, *rows(JobConfig))


@cache
def found(dotted: str) -> tuple[Any, ...]:
    """Return the module, or object in a module, below `distcommit`, of this name; nothing if there is none."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: Any = import_module(".".join(["distcommit", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            if name not in members_of(value):
                return ()
            value = getattr(value, name, None)
        return (value,)
    return ()


def is_object(dotted: str) -> bool:
    return bool(found(dotted))


def members(dotted: str) -> frozenset[str]:
    """Return the names in an object below `distcommit`."""
    return frozenset(name for value in found(dotted) for name in members_of(value))


def members_of(value: Any) -> frozenset[str]:
    bases = value.__mro__ if isinstance(value, type) else (value,)
    annotated = {name for base in bases for name in getattr(base, "__annotations__", ())}
    return frozenset({*dir(value), *annotated})


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
