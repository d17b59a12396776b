"""conf/constraints.txt has a tested version of each requirement, which the requirement allows."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, Version]:
    lines = (ROOT / "conf" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [re.fullmatch(r"([\w.\-]+)==(\S+)", line) for line in lines if line and not line.startswith("#")]
    assert all(matches)
    return {canonicalize_name(match[1]): Version(match[2]) for match in matches if match}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    parsed = [Requirement(text) for text in texts]
    return [
        requirement
        for requirement in parsed
        if requirement.name != "distcommit" and (requirement.marker is None or requirement.marker.evaluate())
    ]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_tested_version_satisfies_the_requirement(requirement: Requirement) -> None:
    assert pins()[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_no_installed_version_is_older_than_the_tested_one(requirement: Requirement) -> None:
    """A new installation may have newer releases than those in the file, which tests must not depend on."""
    pin, installed = pins()[canonicalize_name(requirement.name)], Version(version(requirement.name))
    assert installed >= pin, f"write {requirement.name}=={installed} into conf/constraints.txt, or upgrade it"
