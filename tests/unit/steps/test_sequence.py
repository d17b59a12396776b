"""A sequence by itself: what stops it, and what its errors name."""

from __future__ import annotations

from typing import Any, Self

import pytest

from distcommit.model.errors import DistcommitError, LostError
from distcommit.model.steps import CommitStep, Lost, StepContext, Verification
from distcommit.steps.sequence import CommitSequence


class Said(CommitStep):
    """Says what it is told to; notes that it was executed."""

    type_name = "tests-said"

    def __init__(self, done: list[str], name: str, says: Verification | bool = False, fails: bool = False) -> None:
        self.done, self.name, self.says, self.fails = done, name, says, fails

    def __repr__(self) -> str:
        return self.name

    def verify(self) -> Verification | bool:
        return self.says

    def execute(self) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.done.append(self.name)

    def to_row(self) -> list[Any]:
        return [self.name]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls([], *row)


class Other(Said):
    type_name = "tests-other"


def test_a_lost_step_is_named_with_its_dataset_before_any_of_its_kind_is_executed() -> None:
    done: list[str] = []
    steps = (Said(done, "one"), Said(done, "two", Lost("here", "nothing")), Other(done, "three"))
    with pytest.raises(LostError) as caught:
        CommitSequence("d", steps, lambda: done.append("closed")).commit()
    assert (caught.value.expected, caught.value.found) == ("here", "nothing")
    assert caught.value.ids == {"step": "two", "dataset": "d"}
    assert done == []


def test_a_kind_of_which_one_fails_is_the_last() -> None:
    done: list[str] = []
    steps = (Said(done, "one", True), Said(done, "two", fails=True), Other(done, "three"))
    with pytest.raises(DistcommitError, match="the disk is full"):
        CommitSequence("d", steps, lambda: done.append("closed")).commit()
    assert done == []


def test_what_was_done_before_is_not_executed_and_all_is_closed_last() -> None:
    done: list[str] = []
    steps = (Said(done, "one", True), Said(done, "two"), Other(done, "three"))
    CommitSequence("d", steps, lambda: done.append("closed")).commit()
    assert done == ["two", "three", "closed"]
