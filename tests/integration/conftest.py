"""One Spark session for all tests of this folder that run jobs in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from distcommit.spark.session import open_session
from distcommit.spark.session_settings import SparkSettings


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkSettings(master="local[2,4]"), "tests")
    yield session
    session.stop()
