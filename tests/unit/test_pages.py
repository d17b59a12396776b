"""Names on the pages for users exist in the code, and lists on the pages are complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import distcommit
from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.core.interfaces.sink import Abilities
from tests.checkers.pages import README, broken_links, pages

ROOT = Path(distcommit.__file__).parents[1]
DOCS = ROOT / "conf" / "docs"
TRANSFORMS = DOCS / "guides" / "transforms.md"
FORKS = DOCS / "guides" / "forks.md"
SINKS = DOCS / "connectors" / "sinks.md"
CONNECTORS = [*sorted(DOCS.glob("connectors/source-*.md")), *sorted(DOCS.glob("connectors/sink-*.md"))]
IDEMPOTENCY = DOCS / "design" / "idempotency.md"
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


def text_of(*pages: Path) -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@cache
def names_in(test: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(test.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_of_a_page_exist(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", CONNECTORS, ids=lambda page: page.stem)
def test_connector_page_follows_the_template(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S), re.M)
    assert [heading for heading in headings if heading not in {"How it reads", "How it commits"}] == [
        *("Quick example", "Settings", "Guarantees", "Limits", "Troubleshooting")
    ]
    assert "```yaml" in "\n".join(text_of(page).splitlines()[:20]), "the example is on the first screen"
    tables = re.findall(r"^\|.+\|$", text_of(page).partition("\n## Troubleshooting\n")[2], re.M)
    assert tables[0] == "| symptom | cause | action |"


def test_pages_are_short_and_have_no_broken_links() -> None:
    counted = pages()
    assert counted.broken_links == []
    assert counted.largest.words <= 1500, counted.largest
    assert counted.readme_words <= 800


def test_readme_ends_with_five_links() -> None:
    end = text_of(README).partition("\n## Where to read on\n\n")[2].partition("\n\n")[0]
    assert [len(re.findall(r"\]\(", item)) for item in re.split(r"^- ", end, flags=re.M)[1:]] == [1] * 5


def test_pages_list_each_built_in_construct_under_its_kind() -> None:
    def section(page: Path, title: str, end: str) -> set[str]:
        return set(re.findall(r"`(\w+)`", text_of(page).partition(f"\n## {title}\n")[2].partition(end)[0])) - {"python"}

    def built_in(kind: Section) -> set[str]:
        return set(types_of(kind)) - {"python"}

    assert section(TRANSFORMS, "Converters", "\n\n`sql` takes") == built_in("converter")
    assert section(TRANSFORMS, "Row checkers", ". `on_failure`") == built_in("row_checker")
    assert section(TRANSFORMS, "Task checkers", ". If a check") == built_in("task_checker")
    rows = re.findall(
        r"^\| `(\w+)` \|", text_of(FORKS).partition("| `fork.type` |")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert set(rows) - {"python"} == built_in("fork")


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


def test_tests_named_on_the_page_about_idempotency_exist() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", text_of(IDEMPOTENCY))
    assert len(named) > 40
    for test, file in named:
        assert test in names_in((IDEMPOTENCY.parent / file).resolve()), test
