"""The job files in conf/ are ones that can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.config import load_config

EXAMPLES = sorted((Path(__file__).parents[3] / "conf").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_job(path: Path) -> None:
    assert load_config(path).job in ("clicks", "events", "shop", "tickets")
