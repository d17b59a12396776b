"""Tests in this process until one notices a planted fault.

They are for code that explorer, interleaver and fault injector do not reach, such as sinks with targets of their own,
the audit, and the lock of a job.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_OWN = (
    *("-x", "-q", "-m", "not slow and not long", "-o", "faulthandler_timeout=0"),
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"),
)
"""A forked process has no thread of the fault handler to end."""


class _First:
    """The first failing test and its error; the number of tests that ran."""

    def __init__(self) -> None:
        self.id, self.why, self.ran = "", "", 0

    def pytest_configure(self) -> None:
        """Store no examples: an example that breaks a planted fault is no evidence about the sound product."""
        import hypothesis

        now = hypothesis.settings.get_profile(hypothesis.settings.get_current_profile_name())
        hypothesis.settings.register_profile("planted", now, database=None)
        hypothesis.settings.load_profile("planted")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        if report.failed and not self.id:
            self.id, self.why = report.nodeid, str(report.longrepr).strip()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.id:
            self.id, self.why = report.nodeid, str(report.longrepr).strip()


def first_failure(tests: Sequence[str]) -> tuple[str, str, int]:
    """Return the id of the first failing test, its error, and how many have run; without an id if none fails."""
    first = _First()
    logging.disable(logging.NOTSET)
    os.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*_OWN, *tests], plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not first.id:
        return tests[0], f"pytest ends with {code!r}", first.ran
    return first.id, first.why, first.ran
