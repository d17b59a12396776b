"""Files of the contracts' tests are in memory, if there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.in_memory import folder_in_memory


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    yield from folder_in_memory(tmp_path, request.node)
