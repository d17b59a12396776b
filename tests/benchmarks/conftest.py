"""One Spark session for all benchmark tests, stopped before tests of another package start their own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from benchmarks.session import spark_session


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with spark_session() as (session, _):
            yield session
