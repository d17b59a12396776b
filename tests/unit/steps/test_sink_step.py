"""The step that passes commit infos to a sink: its stored form, and validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from distcommit.core.errors import CorruptError, DistcommitError, HeldBackError, LostError, SinkUnavailableError
from distcommit.core.interfaces.commit_step import StepContext, Verdict
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
    releasing,
)
from distcommit.core.records.sealed_sequences import StepBatch
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.sink_step import SinkCommitStep, open_committer
from distcommit.steps.step_registry import dump_steps, load_steps
from tests.golden.samples import SINK
from tests.golden.stored_bytes import SampleSink

CONTEXT = StepContext(LocalFileSystem(), "/staging", "/output", SampleSink().committers)


def load(*rows: Any) -> list[Any]:
    return list(load_steps([StepBatch("sink-commit", 1, msgspec.msgpack.encode(rows))], CONTEXT))


def test_sink_step_is_stored_as_data_and_takes_the_sink_from_the_context() -> None:
    """The sample sink raises when it is opened, so none of its code may run."""
    request = CommitRequest("d", 7, ({"rows": 3}, [b"x", None]))
    (batch,) = dump_steps([SinkCommitStep(SampleSink(), request, CONTEXT.for_committers)])
    assert msgspec.msgpack.decode(batch.rows) == [[SINK, "d", 7, [{"rows": 3}, [b"x", None]], "main", [], 1, []]]
    (step,) = load_steps([batch], CONTEXT)
    assert isinstance(step, SinkCommitStep)
    assert (step.request, step.sink) == (request, CONTEXT.committers[SINK])
    assert step.verify() is Verdict.PENDING
    assert SinkCommitStep.execute_all([]) == []


def test_sink_step_without_a_sink_of_that_name_is_not_loaded() -> None:
    (batch,) = dump_steps([SinkCommitStep(SampleSink(), CommitRequest("d", 7, (1,)), CONTEXT.for_committers)])
    with pytest.raises(
        SinkUnavailableError, match=rf"dataset=d, epoch=7.*the sink '{SINK}'.*found a job whose sink has no committer"
    ):
        list(load_steps([batch], StepContext(CONTEXT.fs, "/staging", "/output")))


@pytest.mark.parametrize(
    "row",
    [
        [],
        [SINK, "d", 7],
        [SINK, "d", 7, [], 1],
        [1, "d", 7, []],
        [SINK, None, 7, []],
        [SINK, "d", True, []],
        [SINK, "d", 7, {}],
        [SINK, "d", 7, [msgspec.msgpack.Ext(5, b"x")]],
        [SINK, "d", 7, [[{"a": [{1: 2}]}]]],
    ],
)
def test_invalid_row_is_corrupt_whatever_the_sink(row: list[Any]) -> None:
    with pytest.raises(CorruptError):
        load(row)


@dataclass
class Target:
    """A sink as steps see it, which answers all requests alike and records them."""

    name: str
    outcome: CommitOutcome
    prepares_at_target: bool = False
    leaves_in_doubt: bool = False
    infos_version: int = 1
    asked: list[list[str]] = field(default_factory=list)
    infos: list[tuple[Any, ...]] = field(default_factory=list)

    def upgraded(self, info: Any, version: int) -> Any:
        if version == 1:
            raise KeyError("rows")
        return {"upgraded": info}

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _Committer(self)


@dataclass
class _Committer(SinkCommitter):
    target: Target

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.target.asked.append([request.dataset_urn for request in requests])
        self.target.infos += [request.infos for request in requests]
        return [self.target.outcome] * len(requests)


def test_each_committer_receives_only_its_own_requests_in_one_call() -> None:
    good, bad = Target("good", Committed()), Target("bad", FailedForGood("gone"))
    steps = [
        SinkCommitStep(target, CommitRequest(urn, 7, (1,)), CONTEXT.for_committers)
        for target, urn in ((good, "a"), (bad, "b"), (good, "c"))
    ]
    errors = SinkCommitStep.execute_all(steps)
    assert (good.asked, bad.asked) == ([["a", "c"]], [["b"]])
    assert [error is None for error in errors] == [True, False, True]
    assert isinstance(errors[1], LostError)
    assert "sink=bad" in str(errors[1])


def test_committer_receives_infos_in_the_sink_s_current_form() -> None:
    target = Target("t", Committed(), infos_version=3)
    for version in (2, 3):
        step = SinkCommitStep(target, CommitRequest("d", 7, (1,), infos_version=version), CONTEXT.for_committers)
        step.execute()
    assert target.infos == [({"upgraded": 1},), (1,)]


@pytest.mark.parametrize(
    ("version", "problem"), [(1, "infos of version 1: KeyError: 'rows'"), (4, "infos of version 4")]
)
def test_infos_unknown_to_the_sink_count_no_failed_attempt(version: int, problem: str) -> None:
    target = Target("t", Committed(), infos_version=3)
    step = SinkCommitStep(target, CommitRequest("d", 7, (1,), infos_version=version), CONTEXT.for_committers)
    with pytest.raises(SinkUnavailableError, match=f"found {problem}"):
        step.execute()
    with pytest.raises(SinkUnavailableError, match=f"found {problem}"):
        step.withdraw()
    assert target.asked == []


def test_infos_of_an_unknown_version_fail_only_their_own_dataset() -> None:
    target = Target("t", Committed(), infos_version=3)
    errors = SinkCommitStep.execute_all(_steps_of_versions(target, a=3, bad=4, c=3))
    assert target.asked == [["a", "c"]]
    assert [type(error) for error in errors] == [type(None), SinkUnavailableError, type(None)]
    assert "dataset=bad" in str(errors[1])


def test_infos_of_an_unknown_version_hold_back_the_others_of_an_atomic_commit_group() -> None:
    target = Target("t", Committed(), infos_version=3)
    errors = SinkCommitStep.execute_atomically(_steps_of_versions(target, a=3, bad=4, c=3))
    assert target.asked == []
    assert [type(error) for error in errors] == [HeldBackError, SinkUnavailableError, HeldBackError]
    assert "held_by=bad" in str(errors[0])


def _steps_of_versions(target: Target, **versions: int) -> list[SinkCommitStep]:
    return [
        SinkCommitStep(target, CommitRequest(urn, 7, (1,), infos_version=version), CONTEXT.for_committers)
        for urn, version in versions.items()
    ]


@pytest.mark.parametrize("callback", ["withdraw", "allow", "abort"])
def test_committer_callback_that_returns_false_has_failed(callback: str) -> None:
    class Refusing(Target):
        def open_committer(self, context: CommitterContext) -> SinkCommitter:
            committer = _Committer(self)
            setattr(committer, callback, lambda requests: False)
            return committer

    sink = Refusing("custom", Committed(), prepares_at_target=True)
    step = SinkCommitStep(sink, CommitRequest("d", 7, (1,), attempts=("a",)), CONTEXT.for_committers)
    call = {"withdraw": step.withdraw, "allow": step.allow, "abort": step.undo}[callback]
    with pytest.raises(DistcommitError, match=rf"{callback}\(\) to return True or None.*it returned False"):
        call()


class _Ending(_Committer):
    """A committer that records how it ends."""

    def release(self) -> None:
        self.target.asked.append(["released"])

    def close(self) -> None:
        self.target.asked.append(["closed"])


def test_committer_is_released_after_success_and_closed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target("target", Committed())
    monkeypatch.setattr(Target, "open_committer", lambda target, context: _Ending(target))
    for opened in (open_committer(target, CONTEXT.for_committers), releasing(_Ending(target))):
        with opened:
            pass
    for opened in (open_committer(target, CONTEXT.for_committers), releasing(_Ending(target))):
        with pytest.raises(OSError, match="lost"), opened:
            raise OSError("lost")
    assert target.asked == [["released"], ["released"], ["closed"], ["closed"]]


def test_changed_infos_are_not_used_before_they_are_recorded() -> None:
    target = Target("t", RetryLater("later", [2]))
    step = SinkCommitStep(target, CommitRequest("d", 7, (1,)), CONTEXT.for_committers)
    SinkCommitStep.execute_all([step])
    assert (step.is_changed, step.request.infos, step.to_row()[3]) == (True, (1,), [2])
    step.accept_change()
    assert (step.is_changed, step.request.infos, step.to_row()[3]) == (False, (2,), [2])


def test_invalid_outcome_of_a_later_request_changes_no_infos(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [RetryLater("later", [2]), "not an outcome"]
    monkeypatch.setattr(_Committer, "commit", lambda committer, requests: outcomes)
    steps = _steps_of_versions(Target("t", Committed()), a=1, b=1)
    with pytest.raises(AssertionError):
        SinkCommitStep.execute_atomically(steps)
    assert [step.is_changed for step in steps] == [False, False]
