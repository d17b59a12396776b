"""The pages are built as a site without a warning, and the Python API is complete on its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import distcommit
from tests.unit.api_page import PAGE, api_page

ROOT = Path(distcommit.__file__).parents[1]


@pytest.mark.thorough
def test_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = ["build", "--strict", "--config-file", str(ROOT / "conf" / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command], capture_output=True, text=True, check=False, env=environment
    )
    assert built.returncode == 0, built.stderr
    assert "distcommit documentation" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "search" / "search_index.json").is_file()


def test_api_page_has_each_public_name() -> None:
    listed = re.findall(r"^::: distcommit\.(?:[a-z_]+\.)*(\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(distcommit.__all__)


def test_lists_of_the_api_page_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == api_page(page), "run python -m tests.unit.api_page to update the page"
