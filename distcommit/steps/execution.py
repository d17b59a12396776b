"""Executing many sealed sequences at once: batch forms, one durable barrier, failures apart by sequence."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, TypeVar

from distcommit.model.errors import DistcommitError, LostError, storage_error
from distcommit.model.lockstep import Request
from distcommit.model.steps import CommitStep, Lost, Verdict, Verification

logger = logging.getLogger(__name__)

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Outcomes(Generic[Name]):
    """What became of sequences: those that neither failed nor are lost are done, durably. `executed`: steps.

    An error names the step and not the sequence, which the caller knows.
    """

    failed: dict[Name, DistcommitError] = field(default_factory=dict)
    lost: dict[Name, LostError] = field(default_factory=dict)
    executed: Counter[Name] = field(default_factory=Counter)

    def of(self, names: Container[Name]) -> Outcomes[Name]:
        """What became of these."""
        return Outcomes(
            {name: error for name, error in self.failed.items() if name in names},
            {name: lost for name, lost in self.lost.items() if name in names},
            Counter({name: steps for name, steps in self.executed.items() if name in names}),
        )


class Execution(Request):
    """`execute_sequences` of some, together with those of others.

    Args:
        sequences: steps by the sequence's name, which nobody else gives.
        verify_first: for replay.
    """

    def __init__(self, sequences: Mapping[Name, Sequence[CommitStep]], *, verify_first: bool = False) -> None:
        self._sequences, self._verify_first = sequences, verify_first

    @classmethod
    def answer_all(cls, requests: Sequence[Execution]) -> list[Outcomes[Any]]:
        """The `Outcomes` of each."""
        outcomes = {
            verify_first: execute_sequences(
                {n: steps for r in requests if r._verify_first is verify_first for n, steps in r._sequences.items()},
                verify_first=verify_first,
            )
            for verify_first in {request._verify_first for request in requests}
        }
        return [outcomes[request._verify_first].of(request._sequences) for request in requests]


def execute_sequences(sequences: Mapping[Name, Sequence[CommitStep]], *, verify_first: bool) -> Outcomes[Name]:
    """Executes the steps of many sequences, step types together, each sequence's types in its own order.

    A sequence stops at its first type of which a step fails; the others go on. Steps of two sinks count as two types:
    what one refuses must not be with the next. Returns when all effects are durable, also of steps that were found
    done.

    Args:
        sequences: steps by the sequence's name.
        verify_first: for replay. A LOST step is found before anything of its sequence is executed again.
    """
    outcomes: Outcomes[Name] = Outcomes()
    rounds = {name: _by_kind(steps) for name, steps in sequences.items()}
    index = 0
    while active := {
        name: groups[index]
        for name, groups in rounds.items()
        if index < len(groups) and name not in outcomes.failed and name not in outcomes.lost
    }:
        by_kind: dict[tuple[type[CommitStep], str], list[Name]] = {}
        for name, group in active.items():
            by_kind.setdefault((type(group[0]), group[0].sink_name), []).append(name)
        for (kind, _), names in by_kind.items():
            _execute_kind(kind, {name: active[name] for name in names}, outcomes, verify_first=verify_first)
        index += 1
    return outcomes


def _by_kind(steps: Sequence[CommitStep]) -> list[list[CommitStep]]:
    if len(set(map(type, steps))) == 1 and not steps[0].sink_name:
        return [list(steps)]
    return [list(group) for _, group in groupby(steps, lambda step: (type(step), step.sink_name))]


def _execute_kind(
    kind: type[CommitStep], groups: dict[Name, list[CommitStep]], outcomes: Outcomes[Name], *, verify_first: bool
) -> None:
    owners = [name for name, steps in groups.items() for _ in steps]
    steps = [step for group in groups.values() for step in group]
    verdicts: list[Verification] | None = None
    if verify_first:
        answers = _verify(kind, steps)
        verdicts = []
        for name, step, answer in zip(owners, steps, answers, strict=True):
            if isinstance(answer, Verdict):
                verdicts.append(answer)
            elif isinstance(answer, Lost):
                outcomes.lost.setdefault(name, _lost(step, answer))
            else:
                outcomes.failed.setdefault(name, answer)
        if len(verdicts) < len(steps):
            kept = [p for p, name in enumerate(owners) if name not in outcomes.lost and name not in outcomes.failed]
            owners, steps = [owners[index] for index in kept], [steps[index] for index in kept]
            verdicts = [answer for index in kept if not isinstance(answer := answers[index], DistcommitError)]
    errors = _execute(kind, steps, verdicts)
    for index, (name, error) in enumerate(zip(owners, errors, strict=True)):
        if error is None:
            if verdicts is None or verdicts[index] is not Verdict.DONE:
                outcomes.executed[name] += 1
        elif isinstance(error, LostError):
            outcomes.lost.setdefault(name, error)
        else:
            outcomes.failed.setdefault(name, error)


def _verify(kind: type[CommitStep], steps: Sequence[CommitStep]) -> list[Verification | DistcommitError]:
    """Verdicts, or why there is none. What a batch form raises is some step's: then each is asked by itself."""
    try:
        return list(kind.verify_all(steps))
    except Exception as error:
        if len(steps) == 1:
            return [_typed(error, steps[0])]
        logger.debug("batch verification failed, going one by one", exc_info=True)
        return [answer for step in steps for answer in _verify(kind, [step])]


def _execute(
    kind: type[CommitStep], steps: Sequence[CommitStep], verdicts: Sequence[Verification] | None
) -> list[DistcommitError | None]:
    """Errors by step, also for batch forms that raise: executing again is harmless."""
    try:
        return kind.execute_all(steps, verdicts)
    except Exception as error:
        if len(steps) == 1:
            return [_typed(error, steps[0])]
        logger.debug("batch execution failed, going one by one", exc_info=True)
        return [
            answer
            for index, step in enumerate(steps)
            for answer in _execute(kind, [step], None if verdicts is None else [verdicts[index]])
        ]


def _lost(step: CommitStep, answer: Lost) -> LostError:
    return LostError(
        "a commit step is lost",
        step=repr(step),
        expected=answer.expected,
        found=answer.found,
        todo="restore what is missing, then commit again",
    )


def _typed(error: Exception, step: CommitStep) -> DistcommitError:
    if isinstance(error, DistcommitError):
        return error
    if isinstance(error, OSError):
        return storage_error(error, "a commit step failed", step=repr(step))
    return DistcommitError(
        "a commit step failed", step=repr(step), found=f"{type(error).__name__}: {error}", todo="mend the step's code"
    )
