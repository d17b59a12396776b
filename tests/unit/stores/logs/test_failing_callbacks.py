"""A callback of a custom step fails if it returns anything but True or None, or raises an exception."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import pytest

from distcommit.core.errors import DistcommitError, LostError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, Verdict
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.step_registry import register
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore, Roots, open_store


@register
class AnsweringCommitStep(CommitStep):
    """A step whose effect is lost. Each callback returns True, except for those in `answers`."""

    type_name: ClassVar[str] = "test-answering"
    answers: ClassVar[dict[str, object]] = {}

    def verify(self) -> bool:
        return False

    def execute(self) -> None:
        raise LostError("the effect is gone", expected="an effect", found="none")

    def make_durable(self) -> bool | None:
        return cast(bool | None, self.answers.get("make_durable", True))

    def withdraw(self) -> bool | None:
        return cast(bool | None, self.answers.get("withdraw", True))

    def undo(self) -> bool | None:
        return cast(bool | None, self.answers.get("undo", True))

    def to_row(self) -> list[Any]:
        return []

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls()


def quarantined(folder: Path) -> JobStore:
    context = StepContext(LocalFileSystem(durable=False), f"{folder}/staging", f"{folder}/output")
    steps = LogCommitStepStore(context.fs, f"{folder}/stores", context, max_attempts=1)
    steps.create("job")
    steps.put("job", "d", AnsweringCommitStep())
    steps.seal("job", "d")
    sequence = steps.get_commit_sequence("job", "d")
    assert sequence is not None
    with suppress(LostError):
        sequence.commit()
    roots = Roots(f"{folder}/stores/job", context.staging_root, context.output_root)
    return open_store(context.fs, roots, "job", create=False)


def state(store: JobStore) -> DatasetState:
    return store.bucket_log(store.bucket_of("d")).refresh().state_of("d")


@pytest.mark.parametrize("callback", ["withdraw", "undo"])
@pytest.mark.parametrize("answer", [False, 0, "failed"])
def test_sequence_whose_step_was_not_taken_back_stays_in_revocation(
    callback: str, answer: object, tmp_path: Path
) -> None:
    store = quarantined(tmp_path)
    assert state(store).status is DatasetStatus.QUARANTINED
    AnsweringCommitStep.answers = {callback: answer}
    try:
        with pytest.raises(DistcommitError, match=rf"{callback}\(\) to return True or None.*it returned {answer!r}"):
            operator_actions.abandon(store, "d", "operator")
    finally:
        AnsweringCommitStep.answers = {}
    assert state(store).status is DatasetStatus.REVOKING
    operator_actions.abandon(store, "d", "operator")
    assert state(store).status is DatasetStatus.IDLE


def test_effect_that_was_not_made_durable_is_a_failed_step() -> None:
    AnsweringCommitStep.answers = {"make_durable": False}
    try:
        (error,) = AnsweringCommitStep.execute_all([AnsweringCommitStep()], [Verdict.DONE])
    finally:
        AnsweringCommitStep.answers = {}
    assert "make_durable() to return True or None" in str(error)
