"""Checks of a source's plans. An invalid plan stops only its dataset."""

from __future__ import annotations

from collections.abc import Callable, Container

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.dataset_urn import check_urn
from distcommit.core.errors import DistcommitError, SourceError, plain_text, reason_text
from distcommit.core.interfaces.source import DatasetProblem, SkippedDataset
from distcommit.core.records.deferred_records import DeferredCounts, DeferredRecords, deferred
from distcommit.core.support.storable_check import storable
from distcommit.core.watermark import at_or_past
from distcommit.core.work_units import DatasetPlan

LARGEST_SIZE = 1 << 53
"""Largest size of a work unit. Floats represent all sizes up to it exactly."""


def check_plan(
    planned: object, owned: Callable[[str], bool], before: Container[str], groups: CommitGroups
) -> DatasetPlan | DatasetProblem | SkippedDataset:
    """Return the plan as it is stored, or the problem or the skip that replaces it.

    Args:
        planned: the value that the source returned.
        owned: returns whether a dataset belongs to the caller's buckets.
        before: datasets that have a plan already.
        groups: the job's rule for commit groups; every dataset must have a commit group.
    """
    if isinstance(planned, DatasetProblem):
        remedy = tuple(plain_text(word, 1000) for word in planned.remedy)
        return DatasetProblem(plain_text(planned.dataset_urn), reason_text(planned.error), remedy)
    if isinstance(planned, SkippedDataset):
        return SkippedDataset(*map(plain_text, (planned.dataset_urn, planned.reason, planned.kind)))
    if not isinstance(planned, DatasetPlan):
        return DatasetProblem(
            "(no name)", f"the source planned a {type(planned).__name__}; it must be a DatasetPlan: correct its plan()"
        )
    try:
        urn = check_urn(planned.dataset_urn)
        groups.group_of(urn)
        if problem := _ownership_problem(planned, owned, before):
            raise _plan_error(urn, problem)
        return _checked_for_storage(planned)
    except DistcommitError as error:
        return DatasetProblem(plain_text(planned.dataset_urn), reason_text(error))


def checked_deferral(records: DeferredRecords) -> DeferredCounts:
    """Return a storable count. If it is not from 1 to 2^53, it becomes at least 1."""
    is_valid = isinstance(records.records, int) and 0 < records.records <= LARGEST_SIZE
    count = records.records if is_valid else 1
    texts = (plain_text(records.dataset_urn, 300), reason_text(records.cause))
    return deferred(*texts, count, is_minimum=bool(records.is_minimum) or not is_valid)


def _ownership_problem(plan: DatasetPlan, owned: Callable[[str], bool], before: Container[str]) -> str:
    if plan.dataset_urn in before:
        return "it was planned twice"
    return "" if owned(plan.dataset_urn) else "`owned` is false for it: another partition plans it"


def _checked_for_storage(planned: DatasetPlan) -> DatasetPlan:
    try:
        plan = storable(planned)
    except ValueError as error:
        raise _plan_error(planned.dataset_urn, f"it cannot be stored: {error}") from None
    if problem := _range_problem(plan):
        raise _plan_error(plan.dataset_urn, problem)
    for unit in plan.work_units:
        if unit.dataset_urn != plan.dataset_urn:
            raise _plan_error(plan.dataset_urn, f"a work unit of dataset {unit.dataset_urn!r}")
        if not 0 <= unit.size <= LARGEST_SIZE:
            raise _plan_error(plan.dataset_urn, f"a work unit of size {unit.size}; it must be 0 to {LARGEST_SIZE}")
        if not unit.can_end_at(unit.known_end):
            raise _plan_error(plan.dataset_urn, f"a work unit from {unit.low} to {unit.expected_high}")
    return plan


def _range_problem(plan: DatasetPlan) -> str:
    """Return the problem of ranges that do not follow the watermark, or an empty text.

    Skipped ranges must come first in a partition, because the watermark passes them even if no work unit succeeds.
    """
    low = plan.planned_low
    reached = {**plan.start.positions, **(low.positions if low else {})}
    for skip in plan.skipped:
        reached_position = reached.get(skip.partition, skip.low)
        if skip.low != reached_position or not at_or_past(skip.high, skip.low):
            return (
                f"a skipped range from {skip.low!r} to {skip.high!r} of partition {skip.partition!r}; it must begin at"
                f" {reached_position!r} and not end before"
            )
        reached[skip.partition] = skip.high
    for unit in plan.work_units:
        for partition, begin in unit.low.positions.items():
            if partition in reached and not at_or_past(begin, reached[partition]):
                return (
                    f"a work unit that begins at {begin!r} of partition {partition!r}; it must not begin before"
                    f" {reached[partition]!r}, which is read or skipped already"
                )
    return ""


def _plan_error(urn: str, actual: str) -> SourceError:
    return SourceError(
        "the source's plan is invalid",
        id="SOURCE_PLAN_INVALID",
        dataset=urn,
        found=actual,
        todo="correct the source's plan()",
    )
