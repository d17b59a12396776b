"""Back-off between the attempts of a task: how long it waits, what it does meanwhile, and what ends the wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distcommit.core.errors import ConfigurationError, QualityError, RecordError, SourceError
from distcommit.core.work_units import WorkUnit
from distcommit.engine.reading.back_off import LONGEST_WAIT_S, back_off_s
from distcommit.engine.run_settings import RunSettings
from tests.simulation.world import SimulatedClock
from tests.unit.engine.committing.situations import WORLD, check_recovery, rows
from tests.unit.engine.driver.machines import Machine, OddSource, begin_ingest, ingest_all, source, states

DATA = source(a=3, b=2)


class WatchedClock(SimulatedClock):
    """A clock that records each sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)


def failing(times: int, error: Exception | None = None) -> tuple[OddSource, list[str]]:
    """Return a source whose dataset `b` fails so many times, and the list of started work units."""
    started: list[str] = []

    def extracting(unit: WorkUnit) -> None:
        started.append(unit.dataset_urn)
        if unit.dataset_urn == "b" and started.count("b") <= times:
            raise error or SourceError("not now")

    return OddSource(DATA.datasets, extracting=extracting), started


def begun_run(
    machine: Machine, odd: OddSource, clock: WatchedClock, retry_wait_s: float = 8
) -> tuple[RunSettings, int]:
    settings, tasks = begin_ingest(WORLD, machine, odd)
    return replace(settings, clock=clock, task_attempts=4, retry_wait_s=retry_wait_s), tasks


WAITS = [(1, 1, 1), (1, 2, 2), (1, 4, 8), (1, 60, 60), (1, 5000, 60), (90, 9, 90), (0, 9, 0)]


@pytest.mark.parametrize(("first_s", "attempt", "longest_s"), WAITS)
def test_waits_double_up_to_a_bound_with_up_to_half_of_jitter(first_s: float, attempt: int, longest_s: float) -> None:
    assert back_off_s(first_s, attempt, 0) == longest_s
    assert back_off_s(first_s, attempt, 1) == longest_s / 2
    assert longest_s <= max(LONGEST_WAIT_S, first_s)


def test_task_waits_longer_each_time_and_commits_ready_datasets_meanwhile() -> None:
    machine = Machine()
    odd, started = failing(3)
    committed: list[bool] = []

    class Looking(WatchedClock):
        def sleep(self, seconds: float) -> None:
            committed.append(states(WORLD, machine)["a"].done_epoch == settings.epoch)
            super().sleep(seconds)

    clock = Looking()
    settings, tasks = begun_run(machine, odd, clock)
    reports = ingest_all(replace(settings, min_interval_s=1_000), tasks)
    assert sum(report.counts.work_units_failed for report in reports) == 0
    assert started == ["a", *"bbbb"]
    assert 4 + 8 + 16 <= sum(clock.slept) <= 8 + 16 + 32
    assert all(committed), "dataset a is committed before the first wait is over"
    check_recovery(machine, DATA)


def test_zero_back_off_does_not_wait() -> None:
    odd, clock = failing(2)[0], WatchedClock()
    ingest_all(*begun_run(Machine(), odd, clock, 0))
    assert clock.slept == []


def test_run_past_its_time_limit_waits_no_longer_and_its_failures_are_final() -> None:
    machine = Machine()
    (odd, started), clock = failing(1), WatchedClock()
    settings, tasks = begun_run(machine, odd, clock, 1000)
    reports = ingest_all(replace(settings, deadline_ms=clock.now_ms() + 3000), tasks)
    assert sum(report.counts.work_units_failed for report in reports) == 1
    assert started == ["a", "b"]
    assert sum(clock.slept) < 4
    assert sorted(row.outcome for row in rows(settings)) == ["failed", "succeeded"]
    check_recovery(machine, DATA)


def test_fenced_run_waits_no_longer() -> None:
    machine = Machine()
    odd, started = failing(1)

    class Overtaking(WatchedClock):
        def sleep(self, seconds: float) -> None:
            if len(self.slept) == 2:
                begin_ingest(WORLD, machine, DATA)
            super().sleep(seconds)

    clock = Overtaking()
    settings, tasks = begun_run(machine, odd, clock, 1000)
    assert any(report.fenced for report in ingest_all(settings, tasks))
    assert len(clock.slept) == 3
    assert started == ["a", "b"]
    check_recovery(machine, DATA)


@pytest.mark.parametrize("kind", [ConfigurationError, QualityError, RecordError])
@pytest.mark.parametrize("opening", [False, True])
def test_error_that_would_repeat_at_once_is_not_retried(kind: type[Exception], opening: bool) -> None:
    machine = Machine()
    odd, started = failing(1, kind("for good"))
    if opening:

        def opens() -> None:
            started.append("opened")
            raise kind("for good")

        odd = OddSource(DATA.datasets, opening=opens)
    clock = WatchedClock()
    reports = ingest_all(*begun_run(machine, odd, clock))
    assert started == (["opened"] if opening else ["a", "b"])
    assert sum(report.counts.work_units_failed for report in reports) == (2 if opening else 1)
    assert clock.slept == []
    check_recovery(machine, DATA)
