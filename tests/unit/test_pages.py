"""Names on the pages for users exist in the code, and lists on the pages are complete."""

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
from distcommit.app.job_file.built_in import Section, settings_class, types_of
from distcommit.core.interfaces.sink import Abilities
from distcommit.spark.settings import SparkSettings

ROOT = Path(distcommit.__file__).parents[1]
RUNNING = ROOT / "conf" / "docs" / "index.md"
TASK_FLOW = ROOT / "conf" / "docs" / "reference" / "task-flow.md"
SINKS = ROOT / "conf" / "docs" / "connectors" / "sinks.md"
PAGES = [
    page
    for pages in (
        "*.md",
        "conf/**/*.md",
        "distcommit/*.md",
        "benchmarks/*.md",
        "benchmarks/peers/*.md",
        "tests/*.md",
        "tests/golden/*.md",
    )
    for page in sorted(ROOT.glob(pages))
]
PACKAGES = "|".join(path.name for path in sorted(Path(distcommit.__file__).parent.iterdir()) if path.is_dir())


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def names_in(test: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(test.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


def object_at(dotted: str) -> Any:
    """Return the module, or the object in a module, with this name below `distcommit`."""
    parts = dotted.split(".")
    resolved, remaining = distcommit, parts
    while remaining:
        try:
            resolved = import_module(".".join(["distcommit", *parts[: len(parts) - len(remaining) + 1]]))
        except ModuleNotFoundError:
            break
        remaining = remaining[1:]
    for name in remaining:
        resolved = getattr(resolved, name)
    return resolved


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_of_a_page_exist(page: Path) -> None:
    text = text_of(page)
    for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        target_page = (page.parent / target).resolve() if target else page
        assert target_page.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", text_of(target_page), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
            assert heading in anchors, f"{target}#{heading}"


def test_classes_named_on_the_task_flow_page_exist() -> None:
    text = text_of(TASK_FLOW)
    named = set(re.findall(rf"`((?:{PACKAGES})\.[\w.]+)`", text)) - {
        f"spark.{key}" for key in SparkSettings.model_fields
    }
    assert len(named) > 50
    classes = {dotted.rpartition(".")[2]: object_at(dotted) for dotted in named}
    for class_name, attribute in re.findall(r"`([A-Z]\w+)\.(\w+)`", text):
        assert hasattr(classes.get(class_name, distcommit.Job), attribute), attribute


def test_settings_named_on_the_task_flow_page_exist() -> None:
    cells = [line.split(" | ")[1] for line in text_of(TASK_FLOW).splitlines() if line.startswith("| ")]
    sections = {"commit": "CommitSettings", "replay": "ReplaySettings", "task": "TaskSettings", "limits": "RunLimits"}
    named = [key for cell in cells for key in re.findall(rf"`({'|'.join(sections)})\.(\w+)", cell)]
    assert len(named) > 5
    for section, key in named:
        assert key in object_at(f"app.job_file.sections.job_sections.{sections[section]}").model_fields, (
            f"{section}.{key}"
        )


def test_tests_named_on_the_task_flow_page_exist() -> None:
    text = text_of(TASK_FLOW)
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| there", "| ---"))]
    assert len(named) == len(rows)
    for path, test in named:
        assert (ROOT / path).is_file(), path
        assert not test or test in names_in(ROOT / path), f"{path}::{test}"


def test_page_lists_each_built_in_construct_under_its_kind() -> None:
    listed = text_of(RUNNING).partition("\n## Constructs\n")[2].partition("Each of the four may be `python`")[0]
    items = re.findall(r"^- \[[A-Z].*?(?=^- |\Z)", listed, re.MULTILINE | re.DOTALL)
    named = [set(re.findall(r"`(\w+)`", item)) for item in items]
    kinds: tuple[Section, ...] = ("converter", "row_checker", "fork", "task_checker")
    assert named == [set(types_of(kind)) - {"python"} for kind in kinds]


def test_table_of_sinks_matches_their_declared_abilities() -> None:
    rows = {
        re.sub(r"\[(\w+)\]\(.*\)", r"\1", name): answers
        for name, *answers in re.findall(
            r"^\| ([^|]+) \| (yes|no) \| (yes|no) \| (yes|no) \| (yes|no) \|$", text_of(SINKS), re.MULTILINE
        )
    }
    declared: dict[str, list[str]] = {}
    for name, able in abilities_of_sinks():
        flags = (able.at_least_once, able.audit, able.can_roll_back, able.atomic)
        declared[name] = ["yes" if flag else "no" for flag in flags]
    assert rows == declared
    assert set(types_of("sink")) - set(declared) == {"python"}


def abilities_of_sinks() -> Iterator[tuple[str, Abilities]]:
    """Yield the abilities by type name and deciding setting.

    Sinks of type `python` declare theirs by object and are omitted.
    """
    for name in types_of("sink"):
        kind = settings_class("sink", name)
        abilities = getattr(kind, "abilities")  # noqa: B009 - settings are models to the type checker
        if isinstance(abilities, Abilities):
            yield name, abilities
        elif "two_phase" in kind.model_fields:
            for shown, value in ((name, False), (f"{name}, `two_phase`", True)):
                section = {"type": name, "url": f"{name}://host/database", "two_phase": value}
                yield shown, getattr(kind.model_validate(section), "abilities")  # noqa: B009


def test_tests_named_on_the_sinks_page_exist() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", text_of(SINKS))
    assert named
    for test, file in named:
        assert test in names_in((SINKS.parent / file).resolve()), test
