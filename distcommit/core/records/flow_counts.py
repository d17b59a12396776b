"""Record counts of a job's constructs and checkers, summed over attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from distcommit.core.work import ConstructCounts, TaskOutcome, TaskState

Counted = TypeVar("Counted", "ConstructCounts", "CheckCounts", "BranchFailures")


class CheckCounts(Struct, frozen=True, array_like=True):
    """Results of a task checker in a branch.

    Attributes:
        branch: the branch.
        checker: the checker's name.
        mandatory: whether a failed check fails the work unit.
        passed: the number of attempts that passed.
        failed: the number of attempts that did not.
    """

    branch: str
    checker: str
    mandatory: bool
    passed: int = 0
    failed: int = 0


class BranchFailures(Struct, frozen=True, array_like=True):
    """Work units that succeeded although an optional branch failed.

    Attributes:
        branch: the optional branch.
        construct: the construct that failed.
        work_units: the number of work units.
    """

    branch: str
    construct: str
    work_units: int = 0


class FlowCounts(Struct, frozen=True):
    """Sums by construct, by checker and by failed optional branch. Their size does not depend on the number of
    attempts.

    Attributes:
        constructs: the record counts by branch and construct.
        checks: the check results by branch and checker.
        failures: the failures of optional branches.
    """

    constructs: tuple[ConstructCounts, ...] = ()
    checks: tuple[CheckCounts, ...] = ()
    failures: tuple[BranchFailures, ...] = ()

    @classmethod
    def of(cls, state: TaskState) -> FlowCounts:
        """Return the counts of one attempt."""
        checks = [
            CheckCounts(result.branch, check.checker, check.mandatory, *((1, 0) if check.passed else (0, 1)))
            for result in state.branches
            for check in result.checks
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
    """Add up counts with equal leading fields, which name them."""
    sums: dict[tuple[object, ...], Counted] = {}
    for count in counts:
        values = astuple(count)
        total = sums.get(values[:names])
        if total is not None:
            added = map(sum, zip(astuple(total)[names:], values[names:], strict=True))
            count = type(count)(*values[:names], *added)  # noqa: PLW2901 - the running sum
        sums[values[:names]] = count
    return sums.values()
