"""An operator accepts a sequence that its target refused for good.

Its prepared transactions are rolled back by the next run at the latest, whatever dies in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from distcommit.core.errors import ConflictError, LostError, TransientError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, FailedForGood
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.driver.run import RunResult, run
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.test_abort_and_sweep_attempts import LeavingSink
from tests.unit.engine.driver.machines import STAGING, Machine, launch, source, states

WORLD = World()


@dataclass
class PreparingSink(LeavingSink):
    """A sink whose writers leave transactions that can be committed by name alone."""

    name: ClassVar[str] = "preparing"
    leaves_in_doubt: ClassVar[bool] = True


def go(sink: LeavingSink, machine: Machine, data: ModelSource) -> RunResult:
    return run(launch, replace(WORLD.begin(machine, data, sink=sink), min_interval_s=1_000_000))


def refused(request: CommitRequest) -> CommitOutcome:
    return FailedForGood("the target is another one")


def quarantined(sink: LeavingSink) -> tuple[Machine, tuple[str, ...]]:
    """Return a machine with a dataset that the target refused, and the attempts named in its request."""
    machine = Machine()
    sink.answers = refused
    go(sink, machine, source(a=2))
    assert states(WORLD, machine)["a"].status is DatasetStatus.QUARANTINED
    sink.answers = lambda request: None
    return machine, sink.calls[-1][-1].attempts


def accept(sink: LeavingSink, machine: Machine) -> None:
    operator_actions.accept(WORLD.store(machine), "a", "operator", {sink.name: sink})


def aborted_attempts(sink: LeavingSink) -> list[str]:
    return [lost.attempt for lost in sink.aborted]


def test_accept_rolls_back_prepared_attempts_at_once_and_only_once() -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    accept(sink, machine)
    assert tuple(aborted_attempts(sink)) == attempts
    assert go(sink, machine, source(a=3)).succeeded
    assert tuple(aborted_attempts(sink)) == attempts
    assert sink.rows == {"a": ["a/0/2"]}
    assert machine.paths(STAGING) == {}


def test_next_run_rolls_back_attempts_of_a_target_that_was_unavailable() -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    sink.down = True
    accept(sink, machine)
    assert states(WORLD, machine)["a"].status is DatasetStatus.IDLE
    go(sink, machine, source(a=2))
    assert sink.aborted == []
    sink.down = False
    go(sink, machine, source(a=2))
    assert tuple(aborted_attempts(sink)) == attempts
    assert machine.paths(STAGING) == {}


class _DiedError(BaseException):
    """A simulated kill of the command."""


def dies(*_: object) -> None:
    raise _DiedError


def killed_at(owner: object, name: str, act: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, dies)
        with pytest.raises(_DiedError):
            act()


def test_next_run_rolls_back_attempts_if_accept_died_after_its_record() -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    killed_at(SinkCommitStep, "undo", lambda: accept(sink, machine))
    assert states(WORLD, machine)["a"].status is DatasetStatus.IDLE
    go(sink, machine, source(a=2))
    assert tuple(aborted_attempts(sink)) == attempts


@pytest.mark.parametrize("how", ["retry", "accept"])
def test_attempts_are_kept_if_accept_died_before_its_record(how: str) -> None:
    sink = PreparingSink()
    machine, attempts = quarantined(sink)
    killed_at(operator_actions, "_act", lambda: accept(sink, machine))
    sink.answers = refused
    go(sink, machine, source(a=2))
    assert states(WORLD, machine)["a"].status is DatasetStatus.QUARANTINED
    assert sink.aborted == []
    sink.answers = lambda request: None
    if how == "accept":
        accept(sink, machine)
        assert tuple(aborted_attempts(sink)) == attempts
        return
    operator_actions.retry(WORLD.store(machine), "a", "operator")
    for _ in range(2):
        assert go(sink, machine, source(a=2)).succeeded
    assert sink.rows == {"a": ["a/0/0", "a/0/1"]}
    assert sink.aborted == [], "committed attempts must not be rolled back"


def test_data_files_are_kept_because_a_late_committer_could_still_commit_them() -> None:
    sink = LeavingSink()
    machine, _ = quarantined(sink)
    accept(sink, machine)
    assert go(sink, machine, source(a=2)).succeeded
    assert sink.aborted == []


def test_accept_without_the_sink_warns_about_attempts_left_at_the_target(caplog: pytest.LogCaptureFixture) -> None:
    sink = PreparingSink()
    machine, _ = quarantined(sink)
    operator_actions.accept(WORLD.store(machine), "a", "operator", {})
    assert states(WORLD, machine)["a"].status is DatasetStatus.IDLE
    assert "may stay at a target" in caplog.text
    assert "'preparing'" in caplog.text


def test_accept_of_a_dataset_that_is_not_quarantined_is_refused() -> None:
    sink, machine = PreparingSink(), Machine()
    assert go(sink, machine, source(a=2)).succeeded
    with pytest.raises(ConflictError, match="expected the dataset to be quarantined"):
        accept(sink, machine)
    assert sink.aborted == []


def quarantined_by_itself(sink: LeavingSink, folder: Path) -> LogCommitStepStore:
    """Return a store without a job, whose dataset the target refused."""
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


def test_release_of_a_commit_step_store_rolls_back_prepared_attempts(tmp_path: Path) -> None:
    sink = PreparingSink()
    quarantined_by_itself(sink, tmp_path).release("job", "a", "accept")
    assert aborted_attempts(sink) == ["one", "two"]
    assert [path for path in (tmp_path / "staging").rglob("*") if path.is_file()] == []


def test_release_of_a_commit_step_store_names_attempts_left_at_an_unavailable_target(tmp_path: Path) -> None:
    sink = PreparingSink(down=True)
    store = quarantined_by_itself(sink, tmp_path)
    with pytest.raises(TransientError, match=r"could not be rolled back.*'preparing'.*have prepared: one, two"):
        store.release("job", "a", "accept")
    assert not store.exists("job", "a")
    assert sink.aborted == []
