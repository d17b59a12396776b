"""Execution of many sealed sequences, each with its own error."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from distcommit.core.errors import DistcommitError, HeldBackError, LostError
from distcommit.core.interfaces.commit_step import (
    CommitStep,
    Lost,
    Verdict,
    Verification,
    named_after,
    step_error,
    step_name,
)
from distcommit.core.records.run_counts import FlowCounts
from distcommit.core.support.io_batching import IoRequest

logger = logging.getLogger(__name__)

Name = TypeVar("Name", bound=Hashable)
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Outcomes(Generic[Name]):
    """Results of executing sequences. A sequence that is neither failed nor lost is done, durably.

    An error names the failed step. The caller adds the name of the sequence.

    Attributes:
        failed: the error of each failed sequence.
        lost: the error of each sequence with a lost step.
        executed: number of executed steps by sequence.
        counts: counts of the requests to committers by sequence.
    """

    failed: dict[Name, DistcommitError] = field(default_factory=dict)
    lost: dict[Name, LostError] = field(default_factory=dict)
    executed: Counter[Name] = field(default_factory=Counter)
    counts: dict[Name, FlowCounts] = field(default_factory=dict)

    def of(self, names: Container[Name]) -> Outcomes[Name]:
        return Outcomes(
            {name: error for name, error in self.failed.items() if name in names},
            {name: lost_error for name, lost_error in self.lost.items() if name in names},
            Counter({name: steps for name, steps in self.executed.items() if name in names}),
            {name: counts for name, counts in self.counts.items() if name in names},
        )

    def flow(self) -> FlowCounts:
        return sum(self.counts.values(), FlowCounts())


class Execution(IoRequest):
    """I/O request that executes sequences, together with those of other requests.

    Args:
        sequences: steps by unique name.
        verify_first: see `execute_sequences`.
        groups: see `execute_sequences`.
    """

    def __init__(
        self,
        sequences: Mapping[Name, Sequence[CommitStep]],
        *,
        verify_first: bool = False,
        groups: Mapping[Name, Hashable] = MappingProxyType({}),
    ) -> None:
        self._sequences, self._verify_first, self._groups = sequences, verify_first, groups

    @classmethod
    def answer_batch(cls, requests: Sequence[Execution]) -> list[Outcomes[Any]]:
        outcomes = {
            verify_first: execute_sequences(
                {n: steps for r in requests if r._verify_first is verify_first for n, steps in r._sequences.items()},
                verify_first=verify_first,
                groups={name: complete for r in requests for name, complete in r._groups.items()},
            )
            for verify_first in {request._verify_first for request in requests}
        }
        return [outcomes[request._verify_first].of(request._sequences) for request in requests]


def execute_sequences(
    sequences: Mapping[Name, Sequence[CommitStep]],
    *,
    verify_first: bool,
    groups: Mapping[Name, Hashable] = MappingProxyType({}),
) -> Outcomes[Name]:
    """Execute the steps of many sequences, each in its own order. Return once all effects are durable.

    A sequence stops at its first failed step; other sequences continue. Steps that their class puts into one batch
    (`CommitStep.batches`) are executed together, also with batches of the same class of other sequences.

    Args:
        sequences: the steps by sequence name.
        verify_first: whether to verify the steps of a batch before executing it, as replay requires.
        groups: the atomic commit group of each sequence that is published all or none. Once all sequences of a group
            have reached their steps of one sink, these steps are executed by one call of
            `CommitStep.execute_atomically`. If a sequence of the group has failed before, the others fail with
            HeldBackError.
    """
    outcomes: Outcomes[Name] = Outcomes()
    remaining: dict[Name, list[list[CommitStep]]] = {}
    for name, steps in sequences.items():
        try:
            remaining[name] = _batches(steps, is_whole=name in groups)
        except Exception as error:  # noqa: BLE001 - a step class may be the user's
            outcomes.failed[name] = step_error(error, steps[0])
    while due := _due(remaining, groups, outcomes):
        by_kind: dict[tuple[type[CommitStep], str, Hashable], list[Name]] = {}
        for name in due:
            kind, sink = _kind_of(remaining[name][0])
            by_kind.setdefault((kind, sink, groups.get(name) if sink else None), []).append(name)
        for (kind, _, complete), names in by_kind.items():
            batches = {name: remaining[name].pop(0) for name in names}
            _execute_kind(kind, batches, outcomes, verify_first=verify_first, is_complete=complete is not None)
    return outcomes


def _due(
    remaining: Mapping[Name, Sequence[list[CommitStep]]], groups: Mapping[Name, Hashable], outcomes: Outcomes[Name]
) -> list[Name]:
    """Return the sequences to continue. At a sink, the sequences of a group wait for each other. If one of them has
    failed, record the others as held back."""
    going = [
        name for name, kinds in remaining.items() if kinds and name not in outcomes.failed and name not in outcomes.lost
    ]
    if not groups:
        return going
    culprits = {groups[name]: name for failed in (outcomes.failed, outcomes.lost) for name in failed if name in groups}
    expected = {(groups[name], _kind_of(kind)) for name in going if name in groups for kind in remaining[name][1:]}
    due, waiting = [], []
    for name in going:
        kind = _kind_of(remaining[name][0])
        if name not in groups or not kind[1]:
            due.append(name)
        elif groups[name] in culprits:
            outcomes.failed[name] = held_back_by(str(getattr(culprits[groups[name]], "dataset_urn", "another")))
        elif (groups[name], kind) in expected:
            waiting.append(name)
        else:
            due.append(name)
    return due or waiting  # all wait only if the steps are sealed in different orders


def held_back_by(dataset_urn: str, **ids: str) -> HeldBackError:
    return HeldBackError(
        "an atomic commit group is held back because one of its datasets cannot be published",
        held_by=dataset_urn,
        todo="release that dataset with retry, accept or abandon; the next run then publishes the others",
        **ids,
    )


def _kind_of(steps: Sequence[CommitStep]) -> tuple[type[CommitStep], str]:
    return type(steps[0]), steps[0].sink_name


def _batches(steps: Sequence[CommitStep], *, is_whole: bool) -> list[list[CommitStep]]:
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
    is_complete: bool,
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
            sound = [p for p, name in enumerate(owners) if name not in outcomes.lost and name not in outcomes.failed]
            owners, steps = [owners[index] for index in sound], [steps[index] for index in sound]
            verdicts = [answer for index in sound if not isinstance(answer := answers[index], DistcommitError)]
    errors = _execute_whole(kind, steps, verdicts) if is_complete else _execute(kind, steps, verdicts)
    if kind.commit_counts is not CommitStep.commit_counts:  # spares a loop over thousands of steps without counts
        for name, step in zip(owners, steps, strict=True):
            outcomes.counts[name] = outcomes.counts.get(name, FlowCounts()) + step.commit_counts
    if verdicts is None and not any(errors):  # the common case
        outcomes.executed.update({name: len(group) for name, group in groups.items()})
        return
    for index, (name, error) in enumerate(zip(owners, errors, strict=True)):
        if error is None:
            if verdicts is None or verdicts[index] is not Verdict.DONE:
                outcomes.executed[name] += 1
        elif isinstance(error, LostError):
            if name not in outcomes.lost:
                outcomes.lost[name] = named_after(error, steps[index])
        elif name not in outcomes.failed:
            outcomes.failed[name] = named_after(error, steps[index])


def _verify(kind: type[CommitStep], steps: Sequence[CommitStep]) -> list[Verification | DistcommitError]:
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
    """Execute steps; return the error of each, or None. If `execute_all` raises, execute each step alone, which is
    safe."""
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
    try:
        return _one_for_each(steps, kind.execute_atomically(steps, verdicts))
    except Exception as error:  # noqa: BLE001 - a step class may be the user's
        return [step_error(error, step) for step in steps]


def _one_for_each(steps: Sequence[CommitStep], answers: Sequence[Answer]) -> list[Answer]:
    if len(answers) != len(steps):
        raise TypeError(f"a batch form returned {len(answers)} results for {len(steps)} steps")
    return list(answers)


def _lost(step: CommitStep, answer: Lost) -> LostError:
    return LostError(
        "a commit step is lost",
        step=step_name(step),
        expected=answer.expected,
        found=answer.actual,
        todo="restore the missing file or row, then commit again",
    )
