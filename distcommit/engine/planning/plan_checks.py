"""What a source has planned, held against what it may plan: what is wrong stops its own dataset alone."""

from __future__ import annotations

from collections.abc import Callable, Container

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import DistcommitError, SourceError, plain_text, reason_text
from distcommit.core.interfaces.source import DatasetProblem, PassedOver
from distcommit.core.support.storable import storable
from distcommit.core.urn import check_urn
from distcommit.core.watermark import at_or_past
from distcommit.core.work import DatasetPlan

LARGEST_SIZE = 1 << 53
"""Of a work unit: what any reader of a plan has as an exact number."""


def checked_plan(
    planned: object, owned: Callable[[str], bool], before: Container[str], groups: CommitGroups
) -> DatasetPlan | DatasetProblem | PassedOver:
    """The plan as it is stored; or why there can be none, or is none on purpose.

    Args:
        planned: what the source gave.
        owned: whether a dataset belongs to the caller's buckets.
        before: datasets that it has planned already.
        groups: the job's rule: a dataset needs a commit group.
    """
    if isinstance(planned, DatasetProblem):
        remedy = tuple(plain_text(word, 1000) for word in planned.remedy)
        return DatasetProblem(plain_text(planned.dataset_urn), reason_text(planned.error), remedy)
    if isinstance(planned, PassedOver):
        return PassedOver(*map(plain_text, (planned.dataset_urn, planned.reason, planned.kind)))
    if not isinstance(planned, DatasetPlan):
        return DatasetProblem(
            "(no name)", f"the source planned a {type(planned).__name__} instead of a DatasetPlan: correct its plan()"
        )
    try:
        urn = check_urn(planned.dataset_urn)
        groups.group_of(urn)
        if wrong := _wrong(planned, owned, before):
            raise _refused(urn, wrong)
        return _stored(planned)
    except DistcommitError as error:
        return DatasetProblem(plain_text(planned.dataset_urn), reason_text(error))


def _wrong(plan: DatasetPlan, owned: Callable[[str], bool], before: Container[str]) -> str:
    if plan.dataset_urn in before:
        return "it was planned twice"
    return "" if owned(plan.dataset_urn) else "`owned` says no to it: another partition plans it, if it asks for it"


def _stored(planned: DatasetPlan) -> DatasetPlan:
    try:
        plan = storable(planned)
    except ValueError as error:
        raise _refused(planned.dataset_urn, f"it can't be stored: {error}") from None
    if wrong := _misplaced_ranges(plan):
        raise _refused(plan.dataset_urn, wrong)
    for unit in plan.work_units:
        if unit.dataset_urn != plan.dataset_urn:
            raise _refused(plan.dataset_urn, f"a work unit of dataset {unit.dataset_urn!r}")
        if not 0 <= unit.size <= LARGEST_SIZE:
            raise _refused(plan.dataset_urn, f"a work unit of size {unit.size}; there are 0 to {LARGEST_SIZE}")
        if not unit.can_end_at(unit.least_end):
            raise _refused(plan.dataset_urn, f"a work unit from {unit.low} to {unit.expected_high}")
    return plan


def _misplaced_ranges(plan: DatasetPlan) -> str:
    """Return what is wrong with the ranges that a plan skips or reads; empty if they follow the watermark in order.

    Skipped ranges come first in their partition: the watermark passes them whatever is read.
    """
    low = plan.planned_low
    reached = {**plan.start.positions, **(low.positions if low else {})}
    for skip in plan.skipped:
        at = reached.get(skip.partition, skip.low)
        if skip.low != at or not at_or_past(skip.high, skip.low):
            return (
                f"a skipped range from {skip.low!r} to {skip.high!r} of partition {skip.partition!r}, which stands at"
                f" {at!r}: a range that is skipped must begin there, and not end before"
            )
        reached[skip.partition] = skip.high
    for unit in plan.work_units:
        for partition, begin in unit.low.positions.items():
            if partition in reached and not at_or_past(begin, reached[partition]):
                return (
                    f"a work unit that begins at {begin!r} of partition {partition!r}, which stands at"
                    f" {reached[partition]!r}, behind what was read or is skipped"
                )
    return ""


def _refused(urn: str, found: str) -> SourceError:
    return SourceError(
        "the source planned what can't be carried out", dataset=urn, found=found, todo="correct the source's plan()"
    )
