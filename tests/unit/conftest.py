"""What unit tests share: each sees the requests of its own tasks alone."""

from __future__ import annotations

import pytest

from distcommit.core.support.request_counts import Requests
from distcommit.engine.reading import task_recorder


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Those that tasks see: what threads of other tests ask for in this process is none of them."""
    requests = Requests()
    monkeypatch.setattr(task_recorder, "REQUESTS", requests)
    return requests
