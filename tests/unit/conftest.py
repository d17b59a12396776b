"""What unit tests share: each sees the requests of its own tasks alone, and hides the secrets of its own jobs alone."""

from __future__ import annotations

import pytest

from distcommit.engine import task_times
from distcommit.model import redaction
from distcommit.model.requests import Requests


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Those that tasks see: what threads of other tests ask for in this process is none of them."""
    requests = Requests()
    monkeypatch.setattr(task_times, "REQUESTS", requests)
    return requests


@pytest.fixture(autouse=True)
def secrets_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hidden is that of a process: jobs of other tests would hide words of this one."""
    monkeypatch.setattr(redaction, "_values", set())
