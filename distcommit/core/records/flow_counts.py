"""What the constructs of a flow have done, over many attempts at work units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from distcommit.core.work import ConstructCounts, TaskOutcome, TaskState

Counted = TypeVar("Counted", "ConstructCounts", "CheckCounts", "BranchFailures")


class CheckCounts(Struct, frozen=True, array_like=True):
    """How often a task checker of a branch was satisfied, and how often not."""

    branch: str
    checker: str
    mandatory: bool
    passed: int = 0
    failed: int = 0


class BranchFailures(Struct, frozen=True, array_like=True):
    """How many work units have succeeded without an optional branch, which failed at that construct."""

    branch: str
    construct: str
    work_units: int = 0


class FlowCounts(Struct, frozen=True):
    """Sums by construct and by checker, each in its place in the flow: so many, however many attempts there were; and
    what optional branches lack."""

    constructs: tuple[ConstructCounts, ...] = ()
    checks: tuple[CheckCounts, ...] = ()
    failures: tuple[BranchFailures, ...] = ()

    @classmethod
    def of(cls, state: TaskState) -> FlowCounts:
        """Of one attempt."""
        checks = [
            CheckCounts(result.branch, each.checker, each.mandatory, *((1, 0) if each.passed else (0, 1)))
            for result in state.branches
            for each in result.checks
        ]
        failures = [
            BranchFailures(result.branch, result.error_construct, 1)
            for result in state.branches
            if result.error and state.outcome is not TaskOutcome.FAILED
        ]
        return cls(state.constructs, tuple(checks), tuple(failures))

    def __add__(self, other: FlowCounts) -> FlowCounts:
        if not other:
            return self
        return FlowCounts(
            tuple(_summed((*self.constructs, *other.constructs), 2)),
            tuple(_summed((*self.checks, *other.checks), 3)),
            tuple(_summed((*self.failures, *other.failures), 2)),
        )

    def __bool__(self) -> bool:
        return bool(self.constructs or self.checks or self.failures)


def _summed(counts: Iterable[Counted], names: int) -> Iterable[Counted]:
    """One of each, by its first fields, which name it; the others add up."""
    sums: dict[tuple[object, ...], Counted] = {}
    for each in counts:
        values = astuple(each)
        known = sums.get(values[:names])
        if known is not None:
            added = map(sum, zip(astuple(known)[names:], values[names:], strict=True))
            each = type(each)(*values[:names], *added)  # noqa: PLW2901 - what it comes to with those before
        sums[values[:names]] = each
    return sums.values()
