"""Short intervals of served jobs."""

from __future__ import annotations

import pytest

from distcommit.app.job_file.sections import schedule_settings
from distcommit.app.scheduling.cron_and_interval import Interval


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an interval of one second, the shortest that a job file may have, last a tenth of it."""
    monkeypatch.setattr(schedule_settings, "Interval", lambda every_ms: Interval(every_ms // 10))
