"""A person accepts what a target has refused for good: what is prepared there for it is taken away, by the next run at
the latest, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from distcommit.core.errors import ConflictError, LostError, TransientError
from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, FailedForGood
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.driver.run import RunResult, run
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.steps.sink import SinkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.test_losers import LeavingSink
from tests.unit.engine.driver.machines import STAGING, Machine, launch, source, states

WORLD = World()


@dataclass
class PreparingSink(LeavingSink):
    """Its writers leave what can be committed by its name alone."""

    name: ClassVar[str] = "preparing"
    leaves_in_doubt: ClassVar[bool] = True


def go(sink: LeavingSink, machine: Machine, data: ModelSource) -> RunResult:
    return run(launch, replace(WORLD.begin(machine, data, sink=sink), min_interval_s=1_000_000))


def refused(request: CommitRequest) -> CommitOutcome:
    return FailedForGood("the target is another one")


def quarantined(sink: LeavingSink) -> tuple[Machine, tuple[str, ...]]:
    """A machine with a dataset that the sink's target has refused, and whose attempts its request names."""
    machine = Machine()
    sink.answers = refused
    go(sink, machine, source(a=2))
    assert states(WORLD, machine)["a"].status is DatasetStatus.QUARANTINED
    sink.answers = lambda request: None
    return machine, sink.calls[-1][-1].attempts


def accept(sink: LeavingSink, machine: Machine) -> None:
    operator_actions.accept(WORLD.store(machine), "a", "a person", {sink.name: sink})


def discarded(sink: LeavingSink) -> list[str]:
    return [lost.attempt for lost in sink.discarded]


def test_what_is_prepared_is_taken_away_at_once_and_told_once() -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    accept(sink, machine)
    assert tuple(discarded(sink)) == attempts
    assert go(sink, machine, source(a=3)).succeeded
    assert tuple(discarded(sink)) == attempts
    assert sink.rows == {"a": ["a/0/2"]}
    assert machine.paths(STAGING) == {}


def test_a_target_that_is_away_is_asked_by_the_next_run() -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    sink.down = True
    accept(sink, machine)
    assert states(WORLD, machine)["a"].status is DatasetStatus.IDLE
    go(sink, machine, source(a=2))
    assert sink.discarded == []
    sink.down = False
    go(sink, machine, source(a=2))
    assert tuple(discarded(sink)) == attempts
    assert machine.paths(STAGING) == {}


class _DiedError(BaseException):
    """As of a command that is killed."""


def dies(*_: object) -> None:
    raise _DiedError


def killed_at(owner: object, name: str, act: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, dies)
        with pytest.raises(_DiedError):
            act()


def test_killed_after_the_record_the_next_run_takes_it_away() -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    killed_at(SinkCommitStep, "undo", lambda: accept(sink, machine))
    assert states(WORLD, machine)["a"].status is DatasetStatus.IDLE
    go(sink, machine, source(a=2))
    assert tuple(discarded(sink)) == attempts


@pytest.mark.parametrize("how", ["retry", "accept"])
def test_killed_before_the_record_nothing_of_it_is_taken_away_until_somebody_says_so(how: str) -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    killed_at(operator_actions, "_act", lambda: accept(sink, machine))
    sink.answers = refused
    go(sink, machine, source(a=2))
    assert states(WORLD, machine)["a"].status is DatasetStatus.QUARANTINED
    assert sink.discarded == []
    sink.answers = lambda request: None
    if how == "accept":
        accept(sink, machine)
        assert tuple(discarded(sink)) == attempts
        return
    operator_actions.retry(WORLD.store(machine), "a", "a person")
    for _ in range(2):
        assert go(sink, machine, source(a=2)).succeeded
    assert sink.rows == {"a": ["a/0/0", "a/0/1"]}
    assert sink.discarded == [], "it was committed"


def test_data_files_stay_as_who_is_about_to_commit_them_would_not_see_that_they_go() -> None:
    sink = LeavingSink()
    machine, _ = quarantined(sink)
    accept(sink, machine)
    assert go(sink, machine, source(a=2)).succeeded
    assert sink.discarded == []


def test_without_the_sink_it_is_accepted_and_told_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    sink = PreparingSink()
    machine, _ = quarantined(sink)
    operator_actions.accept(WORLD.store(machine), "a", "a person", {})
    assert states(WORLD, machine)["a"].status is DatasetStatus.IDLE
    assert "may stay at a target" in caplog.text
    assert "'preparing'" in caplog.text


def test_what_is_not_quarantined_is_refused() -> None:
    sink, machine = PreparingSink(), Machine()
    assert go(sink, machine, source(a=2)).succeeded
    with pytest.raises(ConflictError, match="expected it to be quarantined"):
        accept(sink, machine)
    assert sink.discarded == []


def quarantined_by_itself(sink: LeavingSink, folder: Path) -> LogCommitStepStore:
    """A store without a job, whose dataset the sink's target has refused."""
    context = StepContext(LocalFileSystem(), str(folder / "staging"), str(folder / "output"), {sink.name: sink})
    store = LogCommitStepStore(context.fs, str(folder / "stores"), context)
    store.create("job")
    request = CommitRequest("a", 1, ({"values": ["a/0/0"]},), attempts=("one", "two"))
    store.put("job", "a", SinkCommitStep(sink, request, context.for_committers))
    store.seal("job", "a")
    sink.answers = refused
    sequence = store.get_commit_sequence("job", "a")
    assert sequence is not None
    with pytest.raises(LostError):
        sequence.commit()
    return store


def test_a_stores_own_release_takes_it_away_too(tmp_path: Path) -> None:
    sink = PreparingSink()
    quarantined_by_itself(sink, tmp_path).release("job", "a", "accept")
    assert discarded(sink) == ["one", "two"]
    assert [path for path in (tmp_path / "staging").rglob("*") if path.is_file()] == []


def test_a_stores_own_release_says_what_stays_at_a_target_that_is_away(tmp_path: Path) -> None:
    sink = PreparingSink(down=True)
    store = quarantined_by_itself(sink, tmp_path)
    with pytest.raises(TransientError, match=r"could not be rolled back.*'preparing'.*have prepared: one, two"):
        store.release("job", "a", "accept")
    assert not store.exists("job", "a")
    assert sink.discarded == []
