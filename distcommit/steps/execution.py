"""Executing many sealed sequences at once: batch forms, one durable barrier, failures apart by sequence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from distcommit.model.errors import DistcommitError, LostError
from distcommit.model.steps import CommitStep, Lost, Verdict, Verification

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Outcomes(Generic[Name]):
    """What became of sequences: those not named here are done, durably."""

    failed: dict[Name, DistcommitError] = field(default_factory=dict)
    lost: dict[Name, Lost] = field(default_factory=dict)
    executed: int = 0


def execute_sequences(sequences: Mapping[Name, Sequence[CommitStep]], *, verify_first: bool) -> Outcomes[Name]:
    """Executes the steps of many sequences, step types together, each sequence's types in its own order.

    A sequence stops at its first type of which a step fails; the others go on. Returns when all effects are durable,
    also of steps that were found done.

    Args:
        sequences: steps by the sequence's name.
        verify_first: for replay. A LOST step is found before anything of its sequence is executed again.
    """
    outcomes: Outcomes[Name] = Outcomes()
    rounds = {name: _by_type(steps) for name, steps in sequences.items()}
    place = 0
    while active := {
        name: groups[place]
        for name, groups in rounds.items()
        if place < len(groups) and name not in outcomes.failed and name not in outcomes.lost
    }:
        by_kind: dict[type[CommitStep], list[Name]] = {}
        for name, group in active.items():
            by_kind.setdefault(type(group[0]), []).append(name)
        for kind, names in by_kind.items():
            _execute_kind(kind, {name: active[name] for name in names}, outcomes, verify_first=verify_first)
        place += 1
    return outcomes


def _by_type(steps: Sequence[CommitStep]) -> list[list[CommitStep]]:
    groups: list[list[CommitStep]] = []
    for step in steps:
        if groups and type(groups[-1][0]) is type(step):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _execute_kind(
    kind: type[CommitStep], groups: dict[Name, list[CommitStep]], outcomes: Outcomes[Name], *, verify_first: bool
) -> None:
    owners = [name for name, steps in groups.items() for _ in steps]
    steps = [step for group in groups.values() for step in group]
    verdicts: list[Verification] | None = None
    if verify_first:
        verdicts = kind.verify_all(steps)
        for name, verdict in zip(owners, verdicts, strict=True):
            if isinstance(verdict, Lost):
                outcomes.lost.setdefault(name, verdict)
        kept = [place for place, name in enumerate(owners) if name not in outcomes.lost]
        owners, steps = [owners[place] for place in kept], [steps[place] for place in kept]
        verdicts = [verdicts[place] for place in kept]
    errors = kind.execute_all(steps, verdicts)
    for place, (name, error) in enumerate(zip(owners, errors, strict=True)):
        if isinstance(error, LostError):
            outcomes.lost.setdefault(name, Lost(error.expected, error.found))
        elif error is not None:
            outcomes.failed.setdefault(name, error)
        elif verdicts is None or verdicts[place] is not Verdict.DONE:
            outcomes.executed += 1
