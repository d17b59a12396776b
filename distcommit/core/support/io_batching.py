"""I/O batching: many generators share storage operations.

One sync for eight buckets takes about as long as a sync for one. Therefore the work on a bucket is a generator. Where
the work needs the storage, the generator yields a *request* and receives the answer::

    def close(log: CommitLog) -> BatchedWork[None]:
        is_put = yield PutIfAbsent(fs, path, data)

The runner resumes each generator until it has yielded a request or has ended. Then the runner answers all requests of
one class by one call, sends every generator its answer, and repeats. The requests of one generator stay in order, and
an error of one generator does not affect the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from distcommit.core.errors import copied, named_by
from distcommit.core.support.parallel import run_parallel

Result = TypeVar("Result")

_MIN_BATCH = 8
"""Minimum number of generators that run at a time. On a disk, 16 take as long as 8 and need more memory."""


class IoRequest(Protocol):
    """An operation that costs about as much for many requests as for one."""

    @classmethod
    @abstractmethod
    def answer_batch(cls, requests: Sequence[Self]) -> Sequence[Any]:
        """Execute at least one request, and return the answers in order.

        An Exception among the answers is raised in the generator that yielded the request. An Exception that this call
        raises is raised in the generators of all requests.
        """
        ...


BatchedWork = Generator[IoRequest, Any, Result]


@dataclass(frozen=True, slots=True)
class _Result(Generic[Result]):
    outcome: Result | Exception


def with_ids(work: BatchedWork[Result], **ids: object) -> BatchedWork[Result]:
    """Add ids, such as the bucket, to every error that leaves the work."""
    with named_by(**ids):
        return (yield from work)


def run_batched(works: Sequence[BatchedWork[Result]], threads: int = 1) -> list[Result]:
    """Return the results of `run_batched_outcomes`.

    Raises:
        Exception: the first error of a work, once all have ended.
    """
    results: list[Result] = []
    for outcome in run_batched_outcomes(works, threads):
        if isinstance(outcome, Exception):
            raise outcome
        results.append(outcome)
    return results


def run_alone(work: BatchedWork[Result]) -> Result:
    return run_batched([work])[0]


def run_batched_outcomes(works: Sequence[BatchedWork[Result]], threads: int = 1) -> list[Result | Exception]:
    """Run the works, batching their requests. Return the result or the error of each, in order.

    Works run in groups of 8, or of `threads` if that is more. The requests of a group are batched.

    Args:
        works: the works, not started yet.
        threads: the number of works that run concurrently between two requests.
    """
    size = max(_MIN_BATCH, threads)
    groups = (works[begin : begin + size] for begin in range(0, len(works), size))
    return [outcome for group in groups for outcome in _run_group(group, threads)]


def _run_group(works: Sequence[BatchedWork[Result]], threads: int) -> list[Result | Exception]:
    outcomes: dict[int, Result | Exception] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(works)))
    while answers:
        requests: dict[type[IoRequest], dict[int, IoRequest]] = {}
        indices = list(answers)
        steps = run_parallel(threads, _resume, [(works[index], answers[index]) for index in indices])
        for index, step in zip(indices, steps, strict=True):
            if isinstance(step, _Result):
                outcomes[index] = step.outcome
            else:
                requests.setdefault(type(step), {})[index] = step
        answers = {
            index: answer
            for kind, of_kind in requests.items()
            for index, answer in zip(of_kind, _answers(kind, list(of_kind.values())), strict=True)
        }
    return [outcomes[index] for index in range(len(works))]


def _resume(turn: tuple[BatchedWork[Result], Any]) -> IoRequest | _Result[Result]:
    work, answer = turn
    try:
        return work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
    except StopIteration as end:
        return _Result(end.value)
    except Exception as error:  # noqa: BLE001 - the error of this work; the others continue
        return _Result(error)


def _answers(kind: type[IoRequest], requests: Sequence[IoRequest]) -> Sequence[Any]:
    try:
        return kind.answer_batch(requests)
    except Exception as error:  # noqa: BLE001 - raised again in each work
        return [error, *(copied(error) for _ in requests[1:])]
