"""Doing many pieces of work in step, so that they share what each of them would have to wait for.

A piece of work is a generator, written as if it were alone. Where it comes to something that costs as much for many as
for one, such as a barrier of the disk, it yields a request, and is sent the answer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from distcommit.core.support.parallel import in_flight

Result = TypeVar("Result")

_UNDER_WAY = 8


class Request(Protocol):
    """Something that is done for many at once."""

    @classmethod
    @abstractmethod
    def answer_all(cls, requests: Sequence[Self]) -> Sequence[Any]:
        """Does what at least one request asks for; answers in their order. An exception among them is raised where the
        request was made, and one that is raised here, in all of them."""
        ...


Work = Generator[Request, Any, Result]


@dataclass(frozen=True, slots=True)
class _Ended(Generic[Result]):
    outcome: Result | Exception


def in_step(works: Sequence[Work[Result]], threads: int = 1) -> list[Result]:
    """What each piece of work returned, in their order; see `outcomes_in_step`.

    Raises:
        Exception: the first that a piece of work raised, when all have ended.
    """
    results: list[Result] = []
    for outcome in outcomes_in_step(works, threads):
        if isinstance(outcome, Exception):
            raise outcome
        results.append(outcome)
    return results


def alone(work: Work[Result]) -> Result:
    """What a piece of work returns, or raises, done by itself."""
    return in_step([work])[0]


def outcomes_in_step(works: Sequence[Work[Result]], threads: int = 1) -> list[Result | Exception]:
    """What each piece of work returned or raised, in their order. One that raises leaves the others to go on.

    Up to 8 are under way, or as many as run at a time: they go on until each has made a request or has ended, then
    requests of one kind are answered together. More would share more, and keep more in memory: measured on a disk, 16
    take as long.

    Args:
        works: the pieces of work, not begun yet.
        threads: how many of them run at a time.
    """
    at_once = max(_UNDER_WAY, threads)
    groups = (works[begin : begin + at_once] for begin in range(0, len(works), at_once))
    return [outcome for group in groups for outcome in _group_in_step(group, threads)]


def _group_in_step(works: Sequence[Work[Result]], threads: int) -> list[Result | Exception]:
    outcomes: dict[int, Result | Exception] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(works)))
    while answers:
        asked: dict[type[Request], dict[int, Request]] = {}
        indices = list(answers)
        steps = in_flight(threads, _go_on, [(works[index], answers[index]) for index in indices])
        for index, step in zip(indices, steps, strict=True):
            if isinstance(step, _Ended):
                outcomes[index] = step.outcome
            else:
                asked.setdefault(type(step), {})[index] = step
        answers = {
            index: answer
            for kind, requests in asked.items()
            for index, answer in zip(requests, _answers(kind, list(requests.values())), strict=True)
        }
    return [outcomes[index] for index in range(len(works))]


def _go_on(turn: tuple[Work[Result], Any]) -> Request | _Ended[Result]:
    work, answer = turn
    try:
        return work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
    except StopIteration as end:
        return _Ended(end.value)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's, and the others go on
        return _Ended(error)


def _answers(kind: type[Request], requests: Sequence[Request]) -> Sequence[Any]:
    try:
        return kind.answer_all(requests)
    except Exception as error:  # noqa: BLE001 - raised again, in all of them
        return [error] * len(requests)
