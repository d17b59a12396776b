"""Executing many sealed sequences at once: batch forms, one durable barrier, failures apart by sequence."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from distcommit.core.errors import DistcommitError, HeldBackError, LostError
from distcommit.core.interfaces.steps import CommitStep, Lost, Verdict, Verification, step_error, step_name
from distcommit.core.support.io_batching import Request

logger = logging.getLogger(__name__)

Name = TypeVar("Name", bound=Hashable)
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Outcomes(Generic[Name]):
    """What became of sequences: those that neither failed nor are lost are done, durably.

    `executed`: how many steps were; `tries`: what the committers of sinks answered.

    An error names the step and not the sequence, which the caller knows.
    """

    failed: dict[Name, DistcommitError] = field(default_factory=dict)
    lost: dict[Name, LostError] = field(default_factory=dict)
    executed: Counter[Name] = field(default_factory=Counter)
    tries: dict[Name, Counter[str]] = field(default_factory=dict)

    def of(self, names: Container[Name]) -> Outcomes[Name]:
        """What became of these."""
        return Outcomes(
            {name: error for name, error in self.failed.items() if name in names},
            {name: lost for name, lost in self.lost.items() if name in names},
            Counter({name: steps for name, steps in self.executed.items() if name in names}),
            {name: tries for name, tries in self.tries.items() if name in names},
        )

    def tried(self) -> Counter[str]:
        """What committers of sinks answered, added up."""
        return sum(self.tries.values(), Counter[str]())


class Execution(Request):
    """`execute_sequences` of some, together with those of others.

    Args:
        sequences: steps by the sequence's name, which nobody else gives.
        verify_first: for replay.
        wholes: as of `execute_sequences`.
    """

    def __init__(
        self,
        sequences: Mapping[Name, Sequence[CommitStep]],
        *,
        verify_first: bool = False,
        wholes: Mapping[Name, Hashable] = MappingProxyType({}),
    ) -> None:
        self._sequences, self._verify_first, self._wholes = sequences, verify_first, wholes

    @classmethod
    def answer_all(cls, requests: Sequence[Execution]) -> list[Outcomes[Any]]:
        """The `Outcomes` of each."""
        outcomes = {
            verify_first: execute_sequences(
                {n: steps for r in requests if r._verify_first is verify_first for n, steps in r._sequences.items()},
                verify_first=verify_first,
                wholes={name: whole for r in requests for name, whole in r._wholes.items()},
            )
            for verify_first in {request._verify_first for request in requests}
        }
        return [outcomes[request._verify_first].of(request._sequences) for request in requests]


def execute_sequences(
    sequences: Mapping[Name, Sequence[CommitStep]],
    *,
    verify_first: bool,
    wholes: Mapping[Name, Hashable] = MappingProxyType({}),
) -> Outcomes[Name]:
    """Execute the steps of many sequences, each sequence's in its own order.

    A sequence stops at the first step that fails; the other sequences continue. Consecutive steps of a sequence that
    their class has put into one batch (`CommitStep.batches`) are executed together, and so are the batches of one class
    that several sequences have reached. Returns when all effects are durable, also of steps that were found done.

    Args:
        sequences: steps by the sequence's name.
        verify_first: for replay. The steps of a batch are verified once all batches before it are done.
        wholes: of sequences that are published all or none, what they are a part of. Each sink's steps of one whole
            are one call, `CommitStep.execute_whole`, once all of its sequences have come to it; where one of these
            has failed before, the others are held back.
    """
    outcomes: Outcomes[Name] = Outcomes()
    left = {name: _batches(steps, is_whole=name in wholes) for name, steps in sequences.items()}
    while due := _due(left, wholes, outcomes):
        by_kind: dict[tuple[type[CommitStep], str, Hashable], list[Name]] = {}
        for name in due:
            kind, sink = _kind_of(left[name][0])
            by_kind.setdefault((kind, sink, wholes.get(name) if sink else None), []).append(name)
        for (kind, _, whole), names in by_kind.items():
            groups = {name: left[name].pop(0) for name in names}
            _execute_kind(kind, groups, outcomes, verify_first=verify_first, whole=whole is not None)
    return outcomes


def _due(
    left: Mapping[Name, Sequence[list[CommitStep]]], wholes: Mapping[Name, Hashable], outcomes: Outcomes[Name]
) -> list[Name]:
    """The sequences that go on. Parts of a whole wait before a sink's steps until all that have such steps are there,
    and are held back if one of them has failed on its way."""
    going = [
        name for name, kinds in left.items() if kinds and name not in outcomes.failed and name not in outcomes.lost
    ]
    if not wholes:
        return going
    culprits = {wholes[name]: name for failed in (outcomes.failed, outcomes.lost) for name in failed if name in wholes}
    expected = {(wholes[name], _kind_of(kind)) for name in going if name in wholes for kind in left[name][1:]}
    due, waiting = [], []
    for name in going:
        kind = _kind_of(left[name][0])
        if name not in wholes or not kind[1]:
            due.append(name)
        elif wholes[name] in culprits:
            outcomes.failed[name] = held_back_by(str(getattr(culprits[wholes[name]], "dataset_urn", "another")))
        elif (wholes[name], kind) in expected:
            waiting.append(name)
        else:
            due.append(name)
    return due or waiting  # all wait only if their steps were sealed in different orders


def held_back_by(dataset_urn: str, **ids: str) -> HeldBackError:
    """Why a part of a whole is not published."""
    return HeldBackError(
        "its run publishes a commit group whole or not at all, and one dataset of it can't be published",
        held_by=dataset_urn,
        todo="release that one with retry, accept or abandon; the next run then publishes the others",
        **ids,
    )


def _kind_of(steps: Sequence[CommitStep]) -> tuple[type[CommitStep], str]:
    return type(steps[0]), steps[0].sink_name


def _batches(steps: Sequence[CommitStep], *, is_whole: bool) -> list[list[CommitStep]]:
    """Split a sequence into batches, in its order. The steps of one sink in a part of a whole are one batch."""
    if len(set(map(type, steps))) == 1 and not steps[0].sink_name:
        groups = [list(steps)]
    else:
        groups = [list(group) for _, group in groupby(steps, lambda step: (type(step), step.sink_name))]
    return [
        list(batch)
        for group in groups
        for batch in ([group] if is_whole and group[0].sink_name else type(group[0]).batches(group))
    ]


def _execute_kind(
    kind: type[CommitStep],
    groups: dict[Name, list[CommitStep]],
    outcomes: Outcomes[Name],
    *,
    verify_first: bool,
    whole: bool,
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
    errors = _execute_whole(kind, steps, verdicts) if whole else _execute(kind, steps, verdicts)
    if kind.tries is not CommitStep.tries:  # else of many thousands none has any
        for name, step in zip(owners, steps, strict=True):
            outcomes.tries.setdefault(name, Counter()).update(step.tries)
    if verdicts is None and not any(errors):  # nearly always
        outcomes.executed.update({name: len(group) for name, group in groups.items()})
        return
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
        return _one_for_each(steps, kind.verify_all(steps))
    except Exception as error:
        if len(steps) == 1:
            return [step_error(error, steps[0])]
        logger.debug("batch verification failed, going one by one", exc_info=True)
        return [answer for step in steps for answer in _verify(kind, [step])]


def _execute(
    kind: type[CommitStep], steps: Sequence[CommitStep], verdicts: Sequence[Verification] | None
) -> list[DistcommitError | None]:
    """Errors by step, also for batch forms that raise: executing again is harmless."""
    try:
        return _one_for_each(steps, kind.execute_all(steps, verdicts))
    except Exception as error:
        if len(steps) == 1:
            return [step_error(error, steps[0])]
        logger.debug("batch execution failed, going one by one", exc_info=True)
        return [
            answer
            for index, step in enumerate(steps)
            for answer in _execute(kind, [step], None if verdicts is None else [verdicts[index]])
        ]


def _execute_whole(
    kind: type[CommitStep], steps: Sequence[CommitStep], verdicts: Sequence[Verification] | None
) -> list[DistcommitError | None]:
    """The same of parts of a whole, which never go one by one."""
    try:
        return _one_for_each(steps, kind.execute_whole(steps, verdicts))
    except Exception as error:  # noqa: BLE001 - of a step's code, whatever it is
        return [step_error(error, step) for step in steps]


def _one_for_each(steps: Sequence[CommitStep], answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers of a class's batch form.

    Raises:
        TypeError: if they are not one for each step.
    """
    if len(answers) != len(steps):
        raise TypeError(f"a batch form answered {len(answers)} times for {len(steps)} steps")
    return list(answers)


def _lost(step: CommitStep, answer: Lost) -> LostError:
    return LostError(
        "a commit step is lost",
        step=step_name(step),
        expected=answer.expected,
        found=answer.found,
        todo="restore what is missing, then commit again",
    )
