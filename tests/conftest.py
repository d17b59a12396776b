"""What tests need beyond the package: strictness about what may be skipped, what was skipped run again, and JVMs that
start cheaply."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# Failures in all shared modules show values, as those in test modules do. It must precede their first import.
_SHARED = {f"tests.{path.stem}" for path in Path(__file__).parent.iterdir()}
pytest.register_assert_rewrite(*sorted(_SHARED - sys.modules.keys()))  # pytest warns of those that are imported

from distcommit.core import redaction
from tests.error_ids import take_wrong_ids, watch_errors
from tests.in_memory import new_session_folder
from tests.servers.java import NO_NEWER_JAVA
from tests.servers.process import ServerUnavailableError
from tests.servers.spark_start import start_cheaply
from tests.stateful import profiles

profiles.load()  # for all tests: none has a deadline
watch_errors()

_SERVERS = "tests.servers.fixtures"
pytest_plugins = [_SERVERS]
REQUIRE_ALL = bool(os.environ.get("DISTCOMMIT_REQUIRE_ALL"))
"""What can be installed is there; a newer Java than the product needs can not be everywhere."""
_SKIPPED = pytest.StashKey["_Skipped"]()
_KEPT = "distcommit/skipped"  # in pytest's cache
_SLOW_S = 900
"""Seconds after which a slow test counts as stuck, also beside checkers on a busy machine."""

_LOGGERS_OF_SPARK = {"DataFrameQueryContextLogger", "SQLQueryContextLogger"}
"""After a failed query these no longer propagate. pytest then adds its handlers to them, whose format they change."""

_HERE = Path(__file__).parent
_WITH_SPARK = tuple(_HERE / name for name in ("benchmarks", "integration"))
_FOLDERS = ("contract", "integration", "benchmarks", "crash", "spec", "stateful")
"""Folders whose files run first if several processes share the tests: the others end with many short files, so that no
process waits for another at the end."""
LONGEST = (
    *("contract/test_postgresql_sink.py", "contract/test_delta.py", "contract/test_iceberg.py"),
    *("integration/sinks/test_postgresql_two_phase.py", "integration/sinks/test_table_sink_jobs.py"),
    *(
        "integration/first_use/test_quickstart.py",
        "integration/runs/test_fixed_settings.py",
        "integration/sources/test_declared_keys.py",
    ),
    *(
        "integration/runs/test_retry_across_runs.py",
        "integration/sinks/test_sink_metrics.py",
        "integration/flows/test_bad_input.py",
    ),
    *("unit/engine/committing/test_atomic_groups.py", "unit/test_imports_without_spark.py"),
    *("unit/test_structure.py", "unit/test_documentation_site.py", "unit/test_commands_on_pages.py"),
)
"""The files that take longest, the first of their folders; the others follow in the order of their names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-last", action="store_true", help="run what the last run skipped, and nothing else")


class _Skipped:
    """Collects the ids of skipped tests. With pytest-xdist, only the controller sees the reports of all workers."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.ids.add(report.nodeid)


class _TemporaryFolder:
    """One folder for the temporary files of the session, of its servers and of killed processes, deleted at the end.

    If a test failed, the folders that tests were given stay, and the summary names them.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="dct-"))  # short: paths of Unix sockets have at most 107 bytes
        self.path.chmod(0o1777)  # PostgreSQL runs as another user
        self._memory = new_session_folder(self.path)
        self.failed = False
        self._before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(self.path)
        tempfile.tempdir = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.failed = exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.failed:
            terminalreporter.write_line(f"temporary files of this session: {self.path}")

    def pytest_unconfigure(self) -> None:
        if self._before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = self._before
        tempfile.tempdir = None
        if self._memory:
            shutil.rmtree(self._memory, ignore_errors=True)
        given = set(self.path.glob("pytest-of-*")) if self.failed else set[Path]()
        for path in {*self.path.iterdir()} - given:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if not given:
            shutil.rmtree(self.path, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    _share_bytecode()
    config.stash[_SKIPPED] = _Skipped()
    config.pluginmanager.register(config.stash[_SKIPPED])
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(_TemporaryFolder())
    if hasattr(config.option, "loadscopereorder"):  # of pytest-xdist: by the number of tests, not by their time
        config.option.loadscopereorder = False


def _share_bytecode() -> None:
    """Let this process and its children store bytecode, also if the environment forbids it, as many containers do.

    Tests start hundreds of processes, and each would compile the product again.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause the garbage collector while tests are collected, and exempt them from it afterwards.

    Thousands of modules and tests stay alive until the end. Each full collection would visit all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` is applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests more time, and keep those that the last run skipped if `--skipped-last` asks for them. Tests with
    a server are thorough.

    Raises:
        pytest.UsageError: if no earlier run recorded what it skipped.
    """
    servers = vars(config.pluginmanager.get_plugin(_SERVERS)).keys()
    for item in items:
        if isinstance(item, pytest.Function) and not servers.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.thorough)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_S))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.path))
    if not config.getoption("--skipped-last"):
        return
    cache = getattr(config, "cache", None)
    stored = cache and cache.get(_KEPT, None)
    if stored is None:
        raise pytest.UsageError("--skipped-last: no earlier run has left what it skipped in pytest's cache")
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in stored])
    items[:] = [item for item in items if item.nodeid in stored]


def _turn(path: Path) -> tuple[int, int]:
    """Return the turn of a test file: long ones first within their folder."""
    folder, *names = path.relative_to(_HERE).parts
    turn = _FOLDERS.index(folder) if folder in _FOLDERS else len(_FOLDERS)
    name = "/".join((folder, *names))
    return turn, LONGEST.index(name) if name in LONGEST else len(LONGEST)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spark starts cheaply in what follows, where anything may start it."""
    if not session.config.option.collectonly and any(
        item.get_closest_marker("slow") or item.path.is_relative_to(folder)
        for item in session.items
        for folder in _WITH_SPARK
    ):
        start_cheaply()


def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_spark()
    cache = getattr(session.config, "cache", None)  # unless its plugin is left out
    if cache and not session.config.option.collectonly and not hasattr(session.config, "workerinput"):
        cache.set(_KEPT, sorted(session.config.stash[_SKIPPED].ids))
    if hasattr(session.config, "workerinput"):
        _silence_clients()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        atexit.register(_silence_clients)


def _end_spark() -> None:
    """End this process's JVM. It deletes its temporary files as it ends, and logs nothing after the summary."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):  # the JVM may be dead
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)


def _silence_clients() -> None:
    """Discard what clients' own threads log of servers that have ended. No test runs any more in this process."""
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


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
    try:
        return (yield from _skips_without_server())
    finally:
        for name in _LOGGERS_OF_SPARK & logging.root.manager.loggerDict.keys():  # Spark must create them
            logging.getLogger(name).propagate = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test if everything has to run, and escape lone surrogates in captured output.

    pytest-xdist sends reports between processes as UTF-8, which cannot encode lone surrogates.
    """
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail") and NO_NEWER_JAVA not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def secrets_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hidden is that of a process: jobs of other tests would hide words of this one."""
    monkeypatch.setattr(redaction, "_values", set())


@pytest.fixture(autouse=True)
def ids_of_errors() -> Iterator[None]:
    """Each error that a test creates has an id of the catalogue."""
    yield
    assert take_wrong_ids() == []
