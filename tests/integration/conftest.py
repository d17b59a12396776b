"""One Spark session for all tests of this folder that run jobs in this process, and folders in memory for some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from distcommit.spark.session import open_session
from distcommit.spark.session_settings import SparkSettings
from tests.in_memory import folder_in_memory

_IN_MEMORY = {"test_fixed_settings", "test_moved_folders"}
"""Modules that only run jobs in this process, and many. No run is killed in its commit."""


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkSettings(master="local[2,4]"), "tests")
    yield session
    session.stop()


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    if request.path.stem in _IN_MEMORY:
        yield from folder_in_memory(tmp_path, request.node)
    else:
        yield tmp_path
