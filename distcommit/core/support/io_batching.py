"""I/O batching: many generators share the storage operations that each of them would wait for.

Committing a bucket waits for the storage several times: to put a log segment, to sync a folder, to rename files. One
sync for eight buckets takes about as long as a sync for one. So work on a bucket is a generator. Where it would wait,
it yields a *request*, and it is sent the answer::

    def close(log: CommitLog) -> BatchedWork[None]:
        is_put = yield PutIfAbsent(fs, path, data)

The runner resumes each generator until it has yielded a request or has ended. Then it answers all requests of one class
with one call, sends every generator its answer, and repeats. Each generator is written as if it ran alone, and its
requests stay in its own order. An error of one generator does not affect the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from distcommit.core.errors import add_ids, copied
from distcommit.core.support.parallel import in_flight

Result = TypeVar("Result")

_MIN_BATCH = 8
"""Generators that run at a time, at least. More would share more, but use more memory: on a disk, 16 take as long."""


class Request(Protocol):
    """An operation that costs about as much for many requests as for one."""

    @classmethod
    @abstractmethod
    def answer_all(cls, requests: Sequence[Self]) -> Sequence[Any]:
        """Execute at least one request; return the answers in order.

        An Exception among the answers is raised in the generator that made the request. An Exception raised here is
        raised in all of them.
        """
        ...


Work = Generator[Request, Any, Result]


@dataclass(frozen=True, slots=True)
class _Ended(Generic[Result]):
    outcome: Result | Exception


def with_ids(work: Work[Result], **ids: object) -> Work[Result]:
    """Add ids, such as the bucket, to every error that leaves the work."""
    try:
        return (yield from work)
    except Exception as error:
        add_ids(error, **ids)
        raise


def in_step(works: Sequence[Work[Result]], threads: int = 1) -> list[Result]:
    """Run the works, batching their requests. Return their results in order; see `run_batched_outcomes`.

    Raises:
        Exception: the first error of a work, once all have ended.
    """
    results: list[Result] = []
    for outcome in outcomes_in_step(works, threads):
        if isinstance(outcome, Exception):
            raise outcome
        results.append(outcome)
    return results


def alone(work: Work[Result]) -> Result:
    """Run one work and return its result."""
    return in_step([work])[0]


def outcomes_in_step(works: Sequence[Work[Result]], threads: int = 1) -> list[Result | Exception]:
    """Run the works, batching their requests. Return the result or the error of each, in order.

    Works run in groups of 8, or of `threads` if that is more. The requests of a group are batched.

    Args:
        works: the works, not started yet.
        threads: the number of works that run concurrently between two requests.
    """
    size = max(_MIN_BATCH, threads)
    groups = (works[begin : begin + size] for begin in range(0, len(works), size))
    return [outcome for group in groups for outcome in _group_in_step(group, threads)]


def _group_in_step(works: Sequence[Work[Result]], threads: int) -> list[Result | Exception]:
    outcomes: dict[int, Result | Exception] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(works)))
    while answers:
        requests: dict[type[Request], dict[int, Request]] = {}
        indices = list(answers)
        steps = in_flight(threads, _resume, [(works[index], answers[index]) for index in indices])
        for index, step in zip(indices, steps, strict=True):
            if isinstance(step, _Ended):
                outcomes[index] = step.outcome
            else:
                requests.setdefault(type(step), {})[index] = step
        answers = {
            index: answer
            for kind, of_kind in requests.items()
            for index, answer in zip(of_kind, _answers(kind, list(of_kind.values())), strict=True)
        }
    return [outcomes[index] for index in range(len(works))]


def _resume(turn: tuple[Work[Result], Any]) -> Request | _Ended[Result]:
    work, answer = turn
    try:
        return work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
    except StopIteration as end:
        return _Ended(end.value)
    except Exception as error:  # noqa: BLE001 - the error of this work; the others continue
        return _Ended(error)


def _answers(kind: type[Request], requests: Sequence[Request]) -> Sequence[Any]:
    try:
        return kind.answer_all(requests)
    except Exception as error:  # noqa: BLE001 - raised again in each work
        return [error, *(copied(error) for _ in requests[1:])]
