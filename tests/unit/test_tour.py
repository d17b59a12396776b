"""The tours name existing modules and functions. Packages of sources and sinks have the form that the tour states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import distcommit
from distcommit.app.job_file.built_in_types import Section, types_of
from tests.unit import packages_page
from tests.unit.designs.test_designs_page import PACKAGES, is_object

ROOT = Path(distcommit.__file__).parent
TOURS = [ROOT.parent / "conf" / "docs" / "design" / "tour.md", ROOT / "README.md"]
WITHOUT_READER = {"micro_batch", "python", "spark"}
"""Types of sources that read with Spark or with a class of the user."""


def missing_names(text: str) -> Iterator[str]:
    for name in re.findall(rf"`((?:{PACKAGES})[./][\w./]+)`", text):
        if not is_object(name.removesuffix(".py").strip("/").replace("/", ".")):
            yield name


@pytest.mark.parametrize("page", TOURS, ids=lambda page: page.parent.name)
def test_modules_and_functions_named_in_a_tour_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(missing_names(text)) == []
    assert len(re.findall(rf"`(?:{PACKAGES})[./]", text)) > 20


def test_check_of_names_reports_missing_modules_and_functions() -> None:
    text = "`core.errors`, `core/gone.py`, `core.errors.gone`, `protocol/seal_decision.py` and `stores`"
    assert list(missing_names(text)) == ["core/gone.py", "core.errors.gone"]


@pytest.mark.parametrize(
    ("section", "own"), [("source", {"source.py", "template.yaml"}), ("sink", {"sink.py", "template.yaml"})]
)
def test_each_source_and_sink_is_a_package_of_the_form_in_the_tour(section: Section, own: set[str]) -> None:
    for name in types_of(section):
        files = {path.name for path in (ROOT / f"{section}s" / name).iterdir()}
        assert own <= files, name
        has_reader = section == "source" and name not in WITHOUT_READER
        assert ("extractor.py" in files) is has_reader, name
        assert bool({"plan_dataset.py", "plan_tables.py"} & files) is has_reader, name


def test_page_of_packages_is_as_their_docstrings_generate_it() -> None:
    text = packages_page.PAGE.read_text(encoding="utf-8")
    assert text == packages_page.packages_page(), "run python -m tests.unit.packages_page to update the page"


def test_each_package_names_existing_modules_to_read_first() -> None:
    for folder in packages_page.packages():
        package = folder.relative_to(ROOT).as_posix().replace("/", ".")
        names = re.findall(r"`([\w.]+)`", packages_page.start_of(packages_page.docstring_of(folder)))
        assert names, package
        assert [name for name in names if not (is_object(f"{package}.{name}") or is_object(name))] == [], package
