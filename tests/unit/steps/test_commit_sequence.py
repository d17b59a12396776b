"""Sequences of steps: failures that stop one, and the names in its errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import pytest

from distcommit.core.errors import DistcommitError, LostError
from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext, Verdict, Verification
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.commit_sequence import CommitSequence
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_execution import execute_sequences


class Said(CommitStep):
    """A step with given answers that records each call."""

    type_name = "tests-said"

    def __init__(self, done: list[str], name: str, says: Verification | bool = False, returns: object = None) -> None:
        self.done, self.name, self.says, self.returns = done, name, says, returns

    def verify(self) -> Verification | bool:
        return self.says

    def execute(self) -> bool | None:
        if isinstance(self.returns, BaseException):
            self.done.append(f"{self.name} failed")
            raise self.returns
        self.done.append(self.name)
        return cast(bool | None, self.returns)  # a custom step's return value is not checked

    def to_row(self) -> list[Any]:
        return [self.name]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls([], *row)


class Other(Said):
    type_name = "tests-other"


class Named(Said):
    def __repr__(self) -> str:
        return f"step {self.name}"


class Unprintable(Said):
    def __repr__(self) -> str:
        raise ValueError("no text")


class Miscounting(Said):
    """A step whose batch form has a defect."""

    @classmethod
    def execute_all(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        return []


def committed(done: list[str], *steps: CommitStep) -> bool:
    return CommitSequence("d", steps, lambda: done.append("closed")).commit()


FAILURES = [
    pytest.param(RuntimeError("LOAD failed"), "RuntimeError: LOAD failed", id="exception"),
    pytest.param(OSError("the disk is full"), "the disk is full", id="os-error"),
    pytest.param(DistcommitError("no such table"), "no such table", id="typed-error"),
    pytest.param(False, "it returned False", id="false"),
    pytest.param(0, "it returned 0", id="zero"),
]


@pytest.mark.parametrize(("returns", "text"), FAILURES)
@pytest.mark.parametrize("kind", [Said, Other], ids=["same-class", "other-class"])
def test_steps_after_a_failed_one_are_not_executed(returns: object, text: str, kind: type[Said]) -> None:
    done: list[str] = []
    with pytest.raises(DistcommitError, match=text):
        committed(done, Said(done, "LOAD", returns=returns), kind(done, "SWAP"), kind(done, "DROP"))
    assert done in (["LOAD"], ["LOAD failed"])


@pytest.mark.parametrize(("returns", "text"), FAILURES)
def test_failed_step_of_one_sequence_stops_no_other_and_no_step_is_executed_twice(returns: object, text: str) -> None:
    done: list[str] = []
    sequences = {
        urn: [
            Said(done, f"{urn}1"),
            Said(done, f"{urn}2", returns=returns if urn == "b" else None),
            Said(done, f"{urn}3"),
        ]
        for urn in "abc"
    }
    outcomes = execute_sequences(sequences, verify_first=False)
    assert [*outcomes.failed] == ["b"]
    assert text in str(outcomes.failed["b"])
    assert [name.split()[0] for name in done] == ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "c3"]
    assert outcomes.executed == {"a": 3, "b": 1, "c": 3}


def test_step_is_verified_after_the_steps_before_it_were_executed() -> None:
    done: list[str] = []

    class AfterLoad(Said):
        def verify(self) -> Verification | bool:
            return False if "LOAD" in self.done else Lost("a loaded table", "none")

    assert committed(done, AfterLoad(["LOAD"], "LOAD"), AfterLoad(["LOAD"], "SWAP"))
    assert committed(done, Said(done, "LOAD"), AfterLoad(done, "SWAP"))
    assert done == ["closed", "LOAD", "SWAP", "closed"]


def test_lost_step_is_named_with_its_dataset_and_is_the_last() -> None:
    done: list[str] = []
    with pytest.raises(LostError) as caught:
        committed(done, Named(done, "one"), Named(done, "two", Lost("here", "nothing")), Other(done, "three"))
    assert (caught.value.expected, caught.value.found) == ("here", "nothing")
    assert caught.value.ids == {"step": f"{__name__}.Named: step two", "dataset": "d"}
    assert done == ["one"]


@pytest.mark.parametrize("kind", [Said, Named, Unprintable])
def test_error_names_a_custom_step_by_its_class(kind: type[Said]) -> None:
    with pytest.raises(DistcommitError) as caught:
        committed([], kind([], "one", returns=ValueError("broken")))
    assert caught.value.ids["step"].startswith(f"{__name__}.{kind.__name__}")
    assert " at 0x" not in str(caught.value)


def test_completed_steps_of_a_sequence_are_not_executed_again() -> None:
    done: list[str] = []
    assert committed(done, Said(done, "one", True), Said(done, "two"), Other(done, "three")) is True
    assert done == ["two", "three", "closed"]


@pytest.mark.parametrize("answer", [None, 1, "done"])
def test_invalid_verdict_of_verify_is_an_error_of_its_step(answer: Any) -> None:
    done: list[str] = []
    with pytest.raises(DistcommitError, match="verify\\(\\) must return DONE, PENDING, LOST or a bool"):
        committed(done, Said(done, "one", answer), Said(done, "two"))
    assert done == []


def test_batch_form_with_too_few_answers_fails_its_own_sequences() -> None:
    done: list[str] = []
    outcomes = execute_sequences({"a": [Miscounting(done, "one")], "b": [Said(done, "two")]}, verify_first=False)
    assert ([*outcomes.failed], done) == (["a"], ["two"])
    assert "returned 0 results for 1 steps" in str(outcomes.failed["a"])


class Unbatchable(Said):
    """A step class whose `batches` has a defect."""

    @classmethod
    def batches(cls, steps: Sequence[Self]) -> Sequence[Sequence[Self]]:
        raise ValueError("no batches")


def test_failing_batches_of_a_class_fail_its_own_sequence_and_name_the_step() -> None:
    done: list[str] = []
    mixed = [Unbatchable(done, "one"), Other(done, "two")]
    outcomes = execute_sequences({"a": mixed, "b": [Said(done, "three")]}, verify_first=False)
    assert ([*outcomes.failed], done) == (["a"], ["three"])
    assert "Unbatchable" in str(outcomes.failed["a"])
    assert "no batches" in str(outcomes.failed["a"])


def test_error_of_a_failed_step_names_its_dataset() -> None:
    with pytest.raises(DistcommitError, match=r"dataset=d\b"):
        CommitSequence("d", (Said([], "one", returns=OSError("no disk")),), close=lambda: None).commit()


def test_typed_error_that_a_step_raises_names_the_step() -> None:
    outcomes = execute_sequences({"a": [Named([], "one", returns=DistcommitError("no"))]}, verify_first=False)
    assert "Named: step one" in str(outcomes.failed["a"])


def context(place: Path, *, nested: bool = False) -> StepContext:
    staging = place / "staging"
    for folder in (staging, place / "output"):
        folder.mkdir()
    return StepContext(LocalFileSystem(), str(staging), str(staging if nested else place / "output"))


def staged(context: StepContext, *names: str) -> None:
    for name in names:
        (Path(context.staging_root) / name).write_bytes(name.encode())


def test_renames_of_different_files_are_one_batch(tmp_path: Path) -> None:
    staging = context(tmp_path)
    staged(staging, "a", "b", "c")
    steps = [FsRenameCommitStep(staging, name, f"d/{name}") for name in "abc"]
    assert [list(batch) for batch in FsRenameCommitStep.batches(steps)] == [steps]


@pytest.mark.parametrize("verify_first", [False, True])
def test_dependent_renames_are_executed_in_order(tmp_path: Path, verify_first: bool) -> None:
    chain = context(tmp_path, nested=True)
    staged(chain, "a")
    first = FsRenameCommitStep(chain, "a", "b")
    second = FsRenameCommitStep.of(chain, _moved(first, "b", "c"))
    outcomes = execute_sequences({"d": [first, second]}, verify_first=verify_first)
    assert (outcomes.failed, outcomes.lost) == ({}, {})
    assert [path.name for path in tmp_path.joinpath("staging").iterdir()] == ["c"]


@pytest.mark.parametrize("verify_first", [False, True])
def test_first_of_two_renames_to_one_path_is_executed(tmp_path: Path, verify_first: bool) -> None:
    plain = context(tmp_path)
    staged(plain, "a", "b")
    steps = [FsRenameCommitStep(plain, name, "x") for name in "ab"]
    outcomes = execute_sequences({"d": steps}, verify_first=verify_first)
    assert [*outcomes.lost] == ["d"]
    assert (tmp_path / "output" / "x").read_bytes() == b"a"
    assert (tmp_path / "staging" / "b").exists()


def test_custom_step_between_renames_runs_between_them(tmp_path: Path) -> None:
    plain = context(tmp_path)
    staged(plain, "a", "b")
    observed: list[list[str]] = []

    class Looking(Said):
        def execute(self) -> None:
            observed.append(sorted(path.name for path in tmp_path.rglob("*") if path.parent.name == "output"))

    steps = [FsRenameCommitStep(plain, "a", "a"), Looking([], "look"), FsRenameCommitStep(plain, "b", "b")]
    assert CommitSequence("d", tuple(steps), lambda: None).commit() is True
    assert observed == [["a"]]
    assert all(step.verify() is Verdict.DONE for step in (steps[0], steps[2]))


def _moved(step: FsRenameCommitStep, staged_path: str, final_path: str) -> Any:
    return type(step.file)(
        staged_path, final_path, step.file.size_bytes, step.file.checksum, step.file.file_id, step.file.mtime_ns
    )
