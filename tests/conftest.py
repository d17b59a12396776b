"""What tests need beyond the package: strictness about what may be skipped, and JVMs that start cheaply."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.servers.process import ServerUnavailableError

pytest_plugins = ["tests.servers.fixtures"]
REQUIRE_ALL = bool(os.environ.get("DISTCOMMIT_REQUIRE_ALL"))

# Tests start hundreds of short-lived JVMs: its `java-opts` halves the processor time of each start of Spark.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "servers" / "spark_conf"))


def _skips_without_server() -> Generator[None, object, object]:
    try:
        return (yield)
    except ServerUnavailableError as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """A test is skipped where a fixture's server can't be had."""
    return (yield from _skips_without_server())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test is skipped where a server that it starts itself can't be had."""
    return (yield from _skips_without_server())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    """Where everything has to run, what would be skipped has failed."""
    outcome = yield
    report = outcome.get_result()
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
