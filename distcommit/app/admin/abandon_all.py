"""Abandon or restart all datasets that can't be finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distcommit.app.inspection.release_plan import ReleasePlan
from distcommit.core.errors import DistcommitError


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The abandoned datasets, and the reasons by the names of buckets that were left alone."""

    datasets: list[str]
    unreadable: dict[str, str]


def abandon_each(plan: ReleasePlan, abandon: Callable[[str], None]) -> Abandoned:
    """Abandon or restart the datasets of the plan. The next run reads their records again.

    Raises:
        DistcommitError, OSError: the first failure, after all others were abandoned.
    """
    todo = [row.dataset for row in plan.rows if row.acts]
    failed: list[DistcommitError | OSError] = []
    for urn in todo:
        try:
            abandon(urn)
        except (DistcommitError, OSError) as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return Abandoned(todo, plan.unreadable)
