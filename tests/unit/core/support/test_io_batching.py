"""I/O batching: concurrent work items share requests, and a failing item does not fail the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from distcommit.core.errors import DistcommitError
from distcommit.core.support.io_batching import (
    BatchedWork,
    IoRequest,
    run_alone,
    run_batched,
    run_batched_outcomes,
    with_ids,
)


class Asks(IoRequest):
    """A request that returns its number doubled, and records which requests were answered together."""

    together: list[list[int]] = []

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def answer_batch(cls, requests: Sequence[Asks]) -> list[Any]:
        numbers = [request.number for request in requests]
        cls.together.append(numbers)
        if 13 in numbers:
            raise OSError("all of them")
        return [number * 2 if number >= 0 else KeyError(number) for number in numbers]


class OtherRequest(Asks):
    """A request of another kind."""

    together: list[list[int]] = []


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    Asks.together.clear()
    OtherRequest.together.clear()


def asking(*requests: Asks) -> BatchedWork[list[int]]:
    answers: list[int] = []
    for request in requests:
        answers += [(yield request)]
    return answers


@pytest.mark.parametrize("threads", [1, 4])
def test_requests_of_one_kind_are_answered_together(threads: int) -> None:
    works = [asking(Asks(1), OtherRequest(2)), asking(), asking(Asks(3), Asks(4)), asking(OtherRequest(5))]
    assert run_batched(works, threads) == [[2, 4], [], [6, 8], [10]]
    assert Asks.together == [[1, 3], [4]]
    assert OtherRequest.together == [[5], [2]]


@pytest.mark.parametrize(("threads", "together"), [(1, [8, 8, 4]), (5, [8, 8, 4]), (12, [12, 8]), (32, [20])])
def test_batch_has_as_many_items_as_run_concurrently_and_at_least_eight(threads: int, together: list[int]) -> None:
    assert run_batched([asking(Asks(number)) for number in range(20, 40)], threads) == [
        [2 * number] for number in range(20, 40)
    ]
    assert [len(numbers) for numbers in Asks.together] == together


def test_error_is_raised_at_its_request_and_the_others_continue() -> None:
    def failing() -> BatchedWork[str]:
        try:
            yield Asks(-1)
        except KeyError as error:
            yield Asks(error.args[0] + 8)
            raise ValueError("mine") from error
        return "no error came"

    def fine() -> BatchedWork[str]:
        yield Asks(1)
        yield Asks(2)
        yield Asks(3)
        return "fine"

    failed, went_on = run_batched_outcomes([failing(), fine()])
    assert isinstance(failed, ValueError)
    assert went_on == "fine"
    assert Asks.together == [[-1, 1], [7, 2], [3]]
    with pytest.raises(ValueError, match="mine"):
        run_batched([fine(), failing()])


def test_failure_of_one_kind_is_raised_for_all_its_requests_and_other_kinds_are_answered() -> None:
    outcomes = run_batched_outcomes([asking(Asks(13)), asking(OtherRequest(1)), asking(Asks(1))])
    assert [type(outcome) for outcome in outcomes] == [OSError, list, OSError]


def test_many_items_are_processed_in_groups() -> None:
    started: list[int] = []

    def work(number: int) -> BatchedWork[int]:
        started.append(number)
        doubled: int = yield Asks(number * 100)
        return doubled

    assert run_batched([work(number) for number in range(40)]) == [number * 200 for number in range(40)]
    assert len(started) == 40
    assert [len(group) for group in Asks.together] == [8] * 5


def test_item_outside_a_batch_returns_or_raises_its_own_result() -> None:
    assert run_alone(asking(Asks(1), Asks(2))) == [2, 4]
    with pytest.raises(KeyError):
        run_alone(asking(Asks(-1)))


class TypedFailureRequest(Asks):
    """A request that fails with a typed error for all items."""

    @classmethod
    def answer_batch(cls, requests: Sequence[Asks]) -> list[Any]:
        raise DistcommitError("a folder cannot be synced", path="/log")


def test_shared_error_names_the_bucket_of_each_work() -> None:
    works = [with_ids(asking(TypedFailureRequest(1)), bucket=bucket) for bucket in (3, 4)]
    assert [str(outcome) for outcome in run_batched_outcomes(works)] == [
        "OPERATION_FAILED: a folder cannot be synced [path=/log, bucket=3]",
        "OPERATION_FAILED: a folder cannot be synced [path=/log, bucket=4]",
    ]


def test_shared_foreign_error_notes_the_bucket_of_each_work() -> None:
    outcomes = run_batched_outcomes([with_ids(asking(Asks(13)), bucket=bucket, dataset="a") for bucket in (3, 4)])
    assert [(type(error), str(error)) for error in outcomes] == [(OSError, "all of them")] * 2
    assert [getattr(error, "__notes__", None) for error in outcomes] == [
        ["bucket=3, dataset=a"],
        ["bucket=4, dataset=a"],
    ]


def test_named_work_returns_its_result_and_keeps_names_that_the_error_has() -> None:
    assert run_alone(with_ids(asking(Asks(1)), bucket=3)) == [2]

    def failing() -> BatchedWork[None]:
        yield Asks(1)
        raise DistcommitError("failed", bucket=5)

    with pytest.raises(DistcommitError, match=r"failed \[bucket=5\]"):
        run_alone(with_ids(failing(), bucket=3))
