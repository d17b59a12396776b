"""What the pages for users name is there, and what is there they name."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import distcommit
from distcommit.app.built_in import Section, settings_class, types_of
from distcommit.model.sink import Abilities
from distcommit.spark.settings import SparkSettings

ROOT = Path(distcommit.__file__).parents[1]
RUNNING = ROOT / "conf" / "README.md"
TASK_FLOW = ROOT / "conf" / "task-flow.md"
TOUR = ROOT / "distcommit" / "README.md"
SINKS = ROOT / "conf" / "sinks" / "README.md"
PAGES = [RUNNING, TASK_FLOW, TOUR, ROOT / "README.md", SINKS]
SECTIONS: dict[Section, str] = {
    "converter": "converters",
    "row_checker": "row_checkers",
    "task_checker": "task_checkers",
    "fork": "fork",
}
PACKAGES = "|".join(path.name for path in sorted(Path(distcommit.__file__).parent.iterdir()) if path.is_dir())


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def names_in(test: Path) -> frozenset[str]:
    body = ast.parse(test.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))


def object_at(dotted: str) -> Any:
    """What is below `distcommit` by that name: a module, or what one holds."""
    parts = dotted.split(".")
    found, rest = distcommit, parts
    while rest:
        try:
            found = import_module(".".join(["distcommit", *parts[: len(parts) - len(rest) + 1]]))
        except ModuleNotFoundError:
            break
        rest = rest[1:]
    for name in rest:
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    text = text_of(page)
    for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", text_of(found), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
            assert heading in anchors, f"{target}#{heading}"


def test_the_classes_that_the_task_flow_names_are_there() -> None:
    text = text_of(TASK_FLOW)
    named = set(re.findall(rf"`((?:{PACKAGES})\.[\w.]+)`", text)) - {
        f"spark.{key}" for key in SparkSettings.model_fields
    }
    assert len(named) > 50
    found = {dotted.rpartition(".")[2]: object_at(dotted) for dotted in named}
    for class_name, attribute in re.findall(r"`([A-Z]\w+)\.(\w+)`", text):
        assert hasattr(found.get(class_name, distcommit.Job), attribute), attribute


def test_the_settings_that_the_task_flow_names_are_there() -> None:
    here = [line.split(" | ")[1] for line in text_of(TASK_FLOW).splitlines() if line.startswith("| ")]
    sections = {"commit": "CommitSettings", "replay": "ReplaySettings", "task": "TaskSettings", "limits": "RunLimits"}
    named = [key for cell in here for key in re.findall(rf"`({'|'.join(sections)})\.(\w+)", cell)]
    assert len(named) > 5
    for section, key in named:
        assert key in object_at(f"app.config.{sections[section]}").model_fields, f"{section}.{key}"


def test_the_tests_that_the_task_flow_names_are_there() -> None:
    text = text_of(TASK_FLOW)
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| there", "| ---"))]
    assert len(named) == len(rows)
    for path, test in named:
        assert (ROOT / path).is_file(), path
        assert not test or test in names_in(ROOT / path), f"{path}::{test}"


@pytest.mark.parametrize("section", SECTIONS)
def test_each_built_in_construct_has_its_row_with_all_of_its_settings(section: Section) -> None:
    header, rows = SECTIONS[section], dict[str, str]()
    table = text_of(RUNNING).partition(f"\n| `{header}` | settings |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        for name in re.findall(r"`(\w+)`", line.split("|")[1]):
            rows[name] = line
    assert set(rows) == set(types_of(section))
    everywhere = {"type", "level", "on_failure"}
    for name, row in rows.items():
        for field, about in settings_class(section, name).model_fields.items():
            setting = about.alias or field
            if setting in everywhere or "as above" in row or "the same" in row:
                continue
            assert re.search(rf"`[^`]*\b{setting}\b[^`]*`", row), f"{name} has a setting {setting}"


def test_the_constructs_of_ones_own_that_the_tour_shows_work() -> None:
    shown: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text_of(TOUR).partition("## Your own constructs")[2], re.DOTALL)[
        :2
    ]:
        exec(block, shown)
    batch = pa.record_batch(
        {"key": pa.array([b"k", None, None], pa.binary()), "value": pa.array([b"a bc", b"\xff", None], pa.binary())}
    )
    (made,) = shown["Words"]().convert(batch)
    assert made.records.column("word").to_pylist() == ["a", "bc"]
    assert made.rows.to_pylist() == [0, 0]
    assert list(made.rejected) == [1]
    assert shown["Short"](3).check(batch).to_pylist() == [False, True, None]
    chosen = shown["ByKey"]().choose(batch, ["keyed", "all"])
    assert chosen["keyed"].to_pylist() == [True, False, False]
    assert chosen["all"] is None


def test_the_table_of_sinks_is_what_they_declare() -> None:
    rows = {
        re.sub(r"\[(\w+)\]\(.*\)", r"\1", name): answers
        for name, *answers in re.findall(
            r"^\| ([^|]+) \| (yes|no) \| (yes|no) \| (yes|no) \|$", text_of(SINKS), re.MULTILINE
        )
    }
    declared: dict[str, list[str]] = {}
    for name in types_of("sink"):
        abilities = getattr(settings_class("sink", name), "abilities")  # noqa: B009 - settings are models to the checker
        if isinstance(abilities, Abilities):  # else each object says it for itself
            each = (abilities.at_least_once, abilities.audit, abilities.can_be_taken_back)
            declared[name] = ["yes" if able else "no" for able in each]
    assert rows == declared
    assert set(types_of("sink")) - set(declared) == {"python"}


def test_the_tests_that_the_traps_of_sinks_name_are_there() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", text_of(SINKS))
    assert named
    for test, file in named:
        assert test in names_in((SINKS.parent / file).resolve()), test
