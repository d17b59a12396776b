"""Cancelling a run: it launches nothing more, and its sealed sequences are replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from pyspark.sql import SparkSession

from distcommit.core.errors import ConfigurationError, ProcessLostError, RunCancelledError
from distcommit.engine.driver.launch_interface import JobFailedError
from distcommit.engine.run_settings import RunSettings
from distcommit.spark import cancellation
from distcommit.spark.cancellation import CancellableLaunch, cancellable
from distcommit.stores.history.run_records import CANCEL_VERSION, CancelRequest, put_cancel
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

WORLD = World()
SOURCE = ModelSource({"a": ModelDataset({"0": 2}), "b": ModelDataset({"0": 1})})
_WAIT_S = 60


@pytest.fixture(autouse=True)
def short_polling_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_POLL_INTERVAL_S", 0.05)


class Answer(msgspec.Struct, frozen=True):
    """An executor's report."""

    partition: int


@dataclass
class Session:
    """A Spark session that records interrupt requests. The first request may fail."""

    fails: bool = False
    heard: threading.Event = field(default_factory=threading.Event)
    tags: list[str] = field(default_factory=list)

    def interruptAll(self) -> list[str]:  # noqa: N802 - Spark's
        if self.fails:
            self.fails = False
            raise ConnectionError("no answer")
        return []

    @property
    def sparkContext(self) -> Session:  # noqa: N802 - Spark's
        return self

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's
        self.tags.append(tag)
        self.heard.set()


def new_machine() -> SimulatedPosix:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    return machine


def cancel(settings: RunSettings, epoch: int) -> None:
    put_cancel(settings.store, CancelRequest(CANCEL_VERSION, epoch, "somebody", 0))


def nothing(settings: RunSettings, partition: int) -> Answer:
    return Answer(partition)


def launched_by(act: Callable[[], None]) -> Any:
    def launch(*_: object) -> list[Answer]:
        act()
        return [Answer(1)]

    return launch


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_run_interrupts_its_jobs_and_launches_nothing(fails: bool) -> None:
    settings, session, launched = WORLD.begin(new_machine(), SOURCE), Session(fails), list[int]()
    with cancellable(launched_by(lambda: launched.append(1)), cast(SparkSession, session), settings) as launch:
        assert launch(nothing, settings, 1, Answer) == [Answer(1)]
        cancel(settings, settings.epoch)
        assert session.heard.wait(_WAIT_S)
        with pytest.raises(RunCancelledError, match="by=somebody"):
            launch(nothing, settings, 1, Answer)
    assert launched == [1]
    assert set(session.tags) == {settings.run_id}, "jobs of other runs are not interrupted"


def test_request_to_cancel_another_run_does_not_end_this_one() -> None:
    settings, session = WORLD.begin(new_machine(), SOURCE), Session()
    cancel(settings, settings.epoch + 1)
    with cancellable(launched_by(lambda: None), cast(SparkSession, session), settings) as launch:
        assert not session.heard.wait(0.5), "ten polling intervals"
        assert launch(nothing, settings, 1, Answer) == [Answer(1)]


@pytest.mark.parametrize(
    "error",
    [
        JobFailedError("interrupted", "it was cancelled"),
        ConfigurationError("no worker"),
        ProcessLostError("a JVM died"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("is_wanted", [True, False])
def test_failure_during_an_interrupt_is_cancellation_and_any_other_failure_is_not(
    error: Exception, is_wanted: bool
) -> None:
    settings, session = WORLD.begin(new_machine(), SOURCE), Session()

    def fail() -> None:
        if not is_wanted:
            cancel(settings, settings.epoch)
            assert session.heard.wait(_WAIT_S)
        raise error

    expected = type(error) if is_wanted else RunCancelledError
    with cancellable(launched_by(fail), cast(SparkSession, session), settings) as launch, pytest.raises(expected):
        launch(nothing, settings, 1, Answer)


def test_run_cancelled_before_each_launch_publishes_nothing_twice_and_the_next_run_finishes() -> None:
    cancelled = 0
    for number in range(1, 20):
        machine, calls = new_machine(), list[int]()

        def require_wanted(calls: list[int] = calls, number: int = number) -> None:
            calls.append(1)
            if len(calls) >= number:
                raise RunCancelledError("the run was cancelled")

        try:
            WORLD.run(machine, SOURCE, launched=partial(CancellableLaunch, check_cancellation=require_wanted))
        except RunCancelledError:
            cancelled += 1
        else:
            break
        WORLD.run(machine, SOURCE)
        assert WORLD.violation(machine, SOURCE, {}) == "", number
        assert {urn: state.positions for urn, state in WORLD.watermarks(machine).items()} == {
            "a": {"0": 2},
            "b": {"0": 1},
        }
    assert 3 <= cancelled < 19, "each launch of a run was reached"
