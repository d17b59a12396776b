"""Each state in which a dataset can be stuck in the Python API: the remedy in the message solves it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import (
    ConfigurationError,
    ConflictError,
    CorruptError,
    DistcommitError,
    FencedError,
    LostError,
    UnknownStepTypeError,
)
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus, Intent, OperatorAction, Record
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName, StepBatch
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.steps import step_registry
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import register
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from tests.unit.stores.logs.test_commit_step_store import TouchCommitStep, context, move, open_store, store

__all__ = ["context", "store"]


def sealed(store: LogCommitStepStore, context: StepContext, tmp_path: Path) -> Path:
    """Seal the publication of a staged file and a move of the watermark for dataset d."""
    staged = tmp_path / "staging" / "a"
    staged.write_bytes(b"x")
    store.put("job", "d", FsRenameCommitStep(context, "a", "d/a"))
    store.put("job", "d", move(None, 5))
    store.seal("job", "d")
    return staged


def commit(store: LogCommitStepStore) -> None:
    sequence = store.get_commit_sequence("job", "d")
    assert sequence is not None
    sequence.commit()


def follow(store: LogCommitStepStore, error: BaseException, *, choose: str = "") -> None:
    """Call `release` with the way printed in the message, or with another way that it names."""
    (written,) = re.findall(r"release\('job', 'd', '(\w+)'\)", str(error))
    how = choose or written
    assert f"'{how}'" in str(error)
    store.release("job", "d", how)


@pytest.fixture
def lost(store: LogCommitStepStore, context: StepContext, tmp_path: Path) -> LostError:
    """Return the error of a commit whose staged file is missing."""
    sealed(store, context, tmp_path).unlink()
    with pytest.raises(LostError, match="no file at either path") as caught:
        commit(store)
    return caught.value


def test_commit_quarantines_a_lost_sequence_and_retry_solves_it(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path, lost: LostError
) -> None:
    assert store.get_commit_sequence("job", "d") is None
    for refused in (
        partial(store.put, "job", "d", TouchCommitStep("x")),
        partial(store.remove, "job", "d"),
        partial(store.remove, "job"),
    ):
        with pytest.raises(ConflictError, match=r"is quarantined .*no file at either path.*release\('job', 'd', how\)"):
            refused()
    (tmp_path / "staging" / "a").write_bytes(b"x")
    follow(store, lost)  # retry
    commit(store)
    assert (store.watermark("job", "d"), store.exists("job", "d")) == (Watermark({"": 5}), False)
    assert (tmp_path / "output" / "d" / "a").read_bytes() == b"x"


@pytest.mark.parametrize(("how", "after"), [("accept", Watermark({"": 5})), ("abandon", None)])
def test_permanently_lost_sequence_is_accepted_or_abandoned(
    store: LogCommitStepStore, lost: LostError, how: str, after: Watermark | None
) -> None:
    follow(store, lost, choose=how)
    assert (store.watermark("job", "d"), store.exists("job", "d")) == (after, False)
    store.put("job", "d", move(5 if after else None, 6))
    store.seal("job", "d")
    commit(store)
    assert store.watermark("job", "d") == Watermark({"": 6})


def test_lost_sequence_is_released_by_another_process(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path, lost: LostError
) -> None:
    later = open_store(context, tmp_path)
    later.release("job", "d", "abandon")
    assert not later.exists("job", "d")


def test_duplicate_of_a_lost_sequence_closes_it_if_its_file_reappears(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    staged = sealed(store, context, tmp_path)
    twin = store.get_commit_sequence("job", "d")
    assert twin is not None
    staged.rename(tmp_path / "aside")
    with pytest.raises(LostError):
        commit(store)
    (tmp_path / "aside").rename(staged)
    twin.commit()
    assert (store.watermark("job", "d"), store.exists("job", "d")) == (Watermark({"": 5}), False)


def test_unknown_way_of_release_is_refused(store: LogCommitStepStore, lost: LostError) -> None:
    with pytest.raises(ConfigurationError, match="expected retry, accept, abandon, restart; found forget"):
        store.release("job", "d", "forget")


@register
class StubbornCommitStep(TouchCommitStep):
    """A step that always fails and cannot be abandoned."""

    type_name: ClassVar[str] = "test-stubborn"

    def execute(self) -> None:
        raise OSError("it never works")


def test_failing_step_is_pending_until_it_is_quarantined(store: LogCommitStepStore, tmp_path: Path) -> None:
    store.put("job", "d", StubbornCommitStep(str(tmp_path / "never")))
    store.put("job", "d", move(None, 5))
    store.seal("job", "d")
    for _ in range(5):
        with pytest.raises(DistcommitError, match="never works"):
            commit(store)
    with pytest.raises(ConflictError, match=r"the dataset to be quarantined; found pending.* quarantine it"):
        store.release("job", "d", "accept")
    with pytest.raises(ConflictError, match=r"quarantine\('job', 'd'\)"):
        store.remove("job", "d")
    store.quarantine("job", "d")
    before = recorded(store)
    with pytest.raises(ConflictError, match=r"cannot be abandoned .*retry or accept"):
        store.release("job", "d", "abandon")
    assert recorded(store) == before, "a refused abandon must put no record"
    store.release("job", "d", "retry")  # follow the message instead of abandoning
    store.quarantine("job", "d")
    store.release("job", "d", "accept")
    assert store.watermark("job", "d") == Watermark({"": 5})


def test_abandon_that_becomes_impossible_is_quarantined_again(store: LogCommitStepStore, tmp_path: Path) -> None:
    """The step could be abandoned when the operator began."""
    store.put("job", "d", StubbornCommitStep(str(tmp_path / "never")))
    store.put("job", "d", move(None, 5))
    store.seal("job", "d")
    store.quarantine("job", "d")
    opened = store._opened("job")
    log = opened.logs[bucket_of("d", opened.store.buckets)]
    name = SequenceName("d", opened.epoch)
    run_alone(
        log.settle(
            partial(next_log_record.operator_decision, action=OperatorAction.REVOKING, name=name, user="operator")
        )
    )
    assert log.refresh().state_of("d").status is DatasetStatus.REVOKING
    with pytest.raises(ConflictError, match="cannot be abandoned"):
        store.release("job", "d", "abandon")
    assert log.refresh().state_of("d").status is DatasetStatus.QUARANTINED


def recorded(store: LogCommitStepStore) -> list[int]:
    """Return the numbers of the records in d's log."""
    opened = store._opened("job")
    return [number for number, _ in opened.logs[bucket_of("d", opened.store.buckets)].segments()]


def batch(store: LogCommitStepStore, steps: StepBatch) -> None:
    """Seal steps that another program wrote."""
    opened = store._opened("job")
    log = opened.logs[bucket_of("d", opened.store.buckets)]
    sequence = SealedSequence("d", opened.epoch, None, Watermark({"": 5}), (steps,))

    def decide(fold: Fold) -> Record | None:
        return Intent(opened.epoch, (sequence,)) if fold.state_of("d").status is DatasetStatus.IDLE else None

    run_alone(log.settle(lambda fold: decide(fold) if fold.state_of("d").closed_epoch < opened.epoch else None))


def test_unreadable_steps_are_quarantined_and_can_be_accepted(store: LogCommitStepStore) -> None:
    batch(store, StepBatch("test-touch", 1, b"\xc1"))
    with pytest.raises(CorruptError, match="release it with accept"):
        store.get_commit_sequence("job", "d")
    with pytest.raises(CorruptError, match="release it with accept"):
        store.release("job", "d", "abandon")
    store.release("job", "d", "accept")
    assert store.watermark("job", "d") == Watermark({"": 5})


def test_steps_of_an_unregistered_type_are_quarantined_by_the_operator_and_accepted(
    store: LogCommitStepStore,
) -> None:
    batch(store, StepBatch("test-of-yore", 1, b"\x90"))
    for _ in range(2):
        with pytest.raises(UnknownStepTypeError, match="quarantine the dataset, then release it with accept"):
            store.get_commit_sequence("job", "d")
    store.quarantine("job", "d")
    store.release("job", "d", "accept")
    assert store.watermark("job", "d") == Watermark({"": 5})


@register
class LateCommitStep(TouchCommitStep):
    """A step that can be abandoned once its target exists."""

    type_name: ClassVar[str] = "test-late-undo"

    def withdraw(self) -> None:
        if not Path(self.path).exists():
            raise ConnectionError("the target is down")

    def undo(self) -> None:
        Path(self.path).unlink()


@pytest.mark.parametrize("how", ["abandon", "accept"])
def test_interrupted_abandon_is_resumed_or_accepted(
    store: LogCommitStepStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = tmp_path / "target"
    store.put("job", "d", LateCommitStep(str(path)))
    store.put("job", "d", move(None, 5))
    store.seal("job", "d")
    store.quarantine("job", "d")
    with pytest.raises(ConnectionError):
        store.release("job", "d", "abandon")
    with pytest.raises(ConflictError, match=r"is revoking .*'abandon', which resumes, or 'accept'"):
        store.remove("job", "d")
    with pytest.raises(ConflictError, match="release it with abandon, which resumes; or with accept"):
        store.release("job", "d", "retry")
    if how == "abandon":
        path.touch()
    else:  # the program of the step is lost too
        monkeypatch.delitem(step_registry._types, "test-late-undo")
        with pytest.raises(UnknownStepTypeError):
            store.release("job", "d", "abandon")
    store.release("job", "d", how)
    assert store.watermark("job", "d") == (Watermark({"": 5}) if how == "accept" else None)
    assert store.remove("job")


def test_fenced_process_with_a_lost_step_raises_fenced_error_and_the_newer_process_commits(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    staged = sealed(store, context, tmp_path)
    sequence = store.get_commit_sequence("job", "d")
    later = open_store(context, tmp_path)
    later.create("job")
    assert later.get_commit_sequence("job", "d") is not None
    assert sequence is not None
    staged.rename(tmp_path / "aside")
    with pytest.raises(FencedError):
        sequence.commit()
    (tmp_path / "aside").rename(staged)
    commit(later)
    assert later.watermark("job", "d") == Watermark({"": 5})
