"""Discarding what aborted attempts left at a target: which attempts are discarded, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext, SinkCommitter
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.engine.committing.discard_aborted_attempts import discard_aborted
from distcommit.engine.driver.run import RunResult, run
from distcommit.stores.folders.attempt_notes import note_attempt, noted_attempts
from distcommit.stores.folders.staging import prepare_bucket
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import STAGING, Machine, launch, source
from tests.unit.engine.driver.test_custom_sinks import MemoryCommitter, MemorySink, MemoryWriter

WORLD = World(task_attempts=2)


@dataclass
class LeavingSink(MemorySink):
    """A sink that records the attempts it must discard. Its first `spoiled` attempts fail after the last record."""

    name: ClassVar[str] = "leaving"
    discards: ClassVar[bool] = True
    spoiled: int = 0
    discarded: list[AbortedAttempt] = field(default_factory=list)
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

    def discard(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        if self.sink.down:
            raise ConnectionError("no route to the target")
        self.sink.discarded += aborted_attempts


def go(sink: MemorySink, machine: Machine, data: ModelSource) -> RunResult:
    return run(launch, replace(WORLD.begin(machine, data, sink=sink), min_interval_s=1_000_000))


def test_failed_attempt_is_discarded_once_its_dataset_is_done_and_the_winner_never() -> None:
    machine, sink = Machine(), LeavingSink(spoiled=1)
    result = go(sink, machine, source(a=2))
    assert result.succeeded
    (aborted,) = sink.discarded
    ((request,),) = sink.calls
    assert (aborted.epoch, aborted.infos) == (result.epoch, ())
    assert len(request.attempts) == 1
    assert aborted.attempt not in request.attempts
    assert machine.paths(STAGING) == {}
    go(sink, machine, source(a=3))
    assert sink.discarded == [aborted]


def test_next_run_discards_the_prepared_attempts_of_a_failed_dataset() -> None:
    machine, sink = Machine(), LeavingSink()
    data = ModelSource({"a": ModelDataset({"0": 1, "1": 1}, units=2, fails=frozenset({"1"}))})
    assert not go(sink, machine, data).succeeded
    assert sink.discarded == []
    go(sink, machine, source(a=[1, 1]))
    assert sorted(str(aborted.infos) for aborted in sink.discarded) == ["()", "()", "({'values': ['a/0/0']},)"]


def test_attempt_that_cannot_be_discarded_stays_noted_for_the_next_run() -> None:
    machine, sink = Machine(), LeavingSink(spoiled=1, down=True)
    result = go(sink, machine, source(a=2))
    assert result.succeeded, "the dataset is published"
    fs = WORLD.store(machine).fs
    assert len(noted_attempts(fs, STAGING, result.epoch, 0)) == 1
    go(sink, machine, source(a=2))
    sink.down = False
    go(sink, machine, source(a=2))
    assert [aborted.epoch for aborted in sink.discarded] == [result.epoch]
    assert machine.paths(STAGING) == {}


def test_job_without_the_sink_leaves_all_attempts_in_place() -> None:
    machine, sink = Machine(), LeavingSink(spoiled=1, down=True)
    epoch = go(sink, machine, source(a=2)).epoch
    fs = WORLD.store(machine).fs
    go(MemorySink(), machine, source(a=2))
    assert len(noted_attempts(fs, STAGING, epoch, 0)) == 1
    sink.down = False
    go(sink, machine, source(a=2))
    assert [aborted.epoch for aborted in sink.discarded] == [epoch]


@pytest.mark.parametrize("ended", [False, True])
def test_live_run_discards_only_attempts_that_have_ended(ended: bool) -> None:
    """A twin may still write, so the next run discards it."""
    machine, sink = Machine(), LeavingSink(spoiled=1 if ended else 0)
    settings = replace(WORLD.begin(machine, source(a=1), sink=sink), min_interval_s=1_000_000)
    fs = settings.store.fs
    prepare_bucket(fs, STAGING, settings.epoch, 0)
    twin = f"{settings.epoch:010d}/bucket=00000/00000_000000.{'7' * 32}"
    fs.make_folder(f"{STAGING}/{twin}")
    note_attempt(fs, STAGING, twin, ["leaving"])
    assert run(launch, settings).succeeded
    assert len(sink.discarded) == ended
    assert fs.status(f"{STAGING}/{twin}") is not None or fs.list_folder(f"{STAGING}/{twin.rpartition('/')[0]}")
    assert discard_aborted(settings, 0, ["00000_000000"]) == [twin]
    go(sink, machine, source(a=1))
    assert sink.discarded[-1].attempt == "7" * 32
    assert machine.paths(STAGING) == {}
