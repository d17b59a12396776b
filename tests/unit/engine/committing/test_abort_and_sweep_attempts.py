"""Abort at a target: which attempts are aborted, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    Committed,
    CommitterContext,
    FailedForGood,
    SinkCommitter,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.committing import abort_and_sweep_attempts
from distcommit.engine.committing.abort_and_sweep_attempts import abort_ended
from distcommit.engine.driver.run import RunResult, run
from distcommit.stores.folders.attempt_notes import note_attempt, noted_attempts
from distcommit.stores.folders.staging import prepare_bucket
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import STAGING, Machine, launch, source
from tests.unit.engine.driver.test_custom_sinks import MemoryCommitter, MemorySink, MemoryWriter, answer_for

WORLD = World(task_attempts=2)


@dataclass
class LeavingSink(MemorySink):
    """A sink that records its aborted attempts. Its first `spoiled` attempts fail after the last record."""

    name: ClassVar[str] = "leaving"
    prepares_at_target: ClassVar[bool] = True
    spoiled: int = 0
    aborted: list[AbortedAttempt] = field(default_factory=list)
    down: bool = False

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        self.spoiled -= 1
        return _SpoiledWriter() if self.spoiled >= 0 else MemoryWriter()

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _Committer(self)


class _SpoiledWriter(MemoryWriter):
    def prepare_commit(self) -> Any:
        raise ConnectionError("no answer")


@dataclass
class _Committer(MemoryCommitter):
    sink: LeavingSink

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        if self.sink.down:
            raise ConnectionError("no route to the target")
        self.sink.aborted += aborted_attempts


def go(sink: MemorySink, machine: Machine, data: ModelSource) -> RunResult:
    return run(launch, replace(WORLD.begin(machine, data, sink=sink), min_interval_s=1_000_000))


def test_failed_attempt_is_aborted_once_its_dataset_is_done_and_the_winner_never() -> None:
    machine, sink = Machine(), LeavingSink(spoiled=1)
    result = go(sink, machine, source(a=2))
    assert result.succeeded
    (aborted,) = sink.aborted
    ((request,),) = sink.calls
    assert (aborted.epoch, aborted.infos) == (result.epoch, ())
    assert len(request.attempts) == 1
    assert aborted.attempt not in request.attempts
    assert machine.paths(STAGING) == {}
    go(sink, machine, source(a=3))
    assert sink.aborted == [aborted]


def test_next_run_aborts_the_prepared_attempts_of_a_failed_dataset() -> None:
    machine, sink = Machine(), LeavingSink()
    data = ModelSource({"a": ModelDataset({"0": 1, "1": 1}, units=2, fails=frozenset({"1"}))})
    assert not go(sink, machine, data).succeeded
    assert sink.aborted == []
    go(sink, machine, source(a=[1, 1]))
    assert sorted(str(aborted.infos) for aborted in sink.aborted) == ["()", "()", "({'values': ['a/0/0']},)"]


def test_attempts_beside_a_quarantined_sequence_are_aborted_and_its_own_are_kept() -> None:
    """A quarantine may last long, and a prepared transaction holds locks for so long."""
    rejected = answer_for("a", FailedForGood("rejected"))
    machine, sink = Machine(), LeavingSink(answers=rejected)
    failing = ModelDataset({"0": 1, "1": 1}, units=2, fails=frozenset({"1"}))
    first = go(sink, machine, ModelSource({"a": ModelDataset({"0": 1}), "b": failing}))
    sealed = {attempt for request in sink.calls[0] for attempt in request.attempts}
    go(sink, machine, source(a=1, b=[1, 1]))
    assert WORLD.store(machine).bucket_log(0).refresh().datasets["a"].status is DatasetStatus.QUARANTINED
    assert {aborted.epoch for aborted in sink.aborted} == {first.epoch}
    assert "b/0/0" in str([aborted.infos for aborted in sink.aborted])
    assert sealed.isdisjoint(aborted.attempt for aborted in sink.aborted)
    sink.answers = answer_for("", Committed())
    operator_actions.retry(WORLD.store(machine), "a", "person")
    assert go(sink, machine, source(a=1, b=[1, 1])).succeeded
    assert sealed.isdisjoint(aborted.attempt for aborted in sink.aborted)
    assert machine.paths(STAGING) == {}


def test_job_without_the_sink_of_a_quarantined_sequence_aborts_nothing() -> None:
    """The attempts of a sequence that cannot be read are unknown."""
    machine, sink = Machine(), LeavingSink(answers=answer_for("a", FailedForGood("rejected")))
    failing = ModelDataset({"0": 1, "1": 1}, units=2, fails=frozenset({"1"}))
    go(sink, machine, ModelSource({"a": ModelDataset({"0": 1}), "b": failing}))
    other = LeavingSink()
    other.name = "other"  # type: ignore[misc]
    go(other, machine, source(a=1))
    assert sink.aborted == other.aborted == []


def test_quarantined_step_that_cannot_be_loaded_does_not_stop_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom step's class may have changed since the step was stored."""
    machine, sink = Machine(), LeavingSink(answers=answer_for("a", FailedForGood("rejected")))
    failing = ModelDataset({"0": 1, "1": 1}, units=2, fails=frozenset({"1"}))
    go(sink, machine, ModelSource({"a": ModelDataset({"0": 1}), "b": failing}))

    def load_steps(*_: Any) -> Any:
        raise KeyError("a field that the class had before")

    monkeypatch.setattr(abort_and_sweep_attempts, "load_steps", load_steps)
    result = go(sink, machine, source(a=1, b=[1, 1]))
    assert [reason.subject for reason in result.reasons.entries] == ["a"], "the bucket is recovered"
    assert result.totals.datasets_published == 1
    assert sink.aborted == []


def test_attempt_that_cannot_be_aborted_stays_noted_for_the_next_run() -> None:
    machine, sink = Machine(), LeavingSink(spoiled=1, down=True)
    result = go(sink, machine, source(a=2))
    assert result.succeeded, "the dataset is published"
    fs = WORLD.store(machine).fs
    assert len(noted_attempts(fs, STAGING, result.epoch, 0)) == 1
    go(sink, machine, source(a=2))
    sink.down = False
    go(sink, machine, source(a=2))
    assert [aborted.epoch for aborted in sink.aborted] == [result.epoch]
    assert machine.paths(STAGING) == {}


def test_job_without_the_sink_leaves_all_attempts_in_place() -> None:
    machine, sink = Machine(), LeavingSink(spoiled=1, down=True)
    epoch = go(sink, machine, source(a=2)).epoch
    fs = WORLD.store(machine).fs
    go(MemorySink(), machine, source(a=2))
    assert len(noted_attempts(fs, STAGING, epoch, 0)) == 1
    sink.down = False
    go(sink, machine, source(a=2))
    assert [aborted.epoch for aborted in sink.aborted] == [epoch]


@pytest.mark.parametrize("ended", [False, True])
def test_live_run_aborts_only_attempts_that_have_ended(ended: bool) -> None:
    """A twin may still write, so the next run aborts it."""
    machine, sink = Machine(), LeavingSink(spoiled=1 if ended else 0)
    settings = replace(WORLD.begin(machine, source(a=1), sink=sink), min_interval_s=1_000_000)
    fs = settings.store.fs
    prepare_bucket(fs, STAGING, settings.epoch, 0)
    twin = f"{settings.epoch:010d}/bucket=00000/00000_000000.{'7' * 32}"
    fs.make_folder(f"{STAGING}/{twin}")
    note_attempt(fs, STAGING, twin, ["leaving"])
    assert run(launch, settings).succeeded
    assert len(sink.aborted) == ended
    assert fs.status(f"{STAGING}/{twin}") is not None or fs.list_folder(f"{STAGING}/{twin.rpartition('/')[0]}")
    assert abort_ended(settings, 0, ["00000_000000"]) == [twin]
    go(sink, machine, source(a=1))
    assert sink.aborted[-1].attempt == "7" * 32
    assert machine.paths(STAGING) == {}
