"""Read priority of work units. Datasets furthest behind their target come first, backlogs last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from distcommit.core.interfaces.source import Lag
from distcommit.core.records.freshness_targets import Freshness
from distcommit.core.work_units import DatasetPlan, WorkUnit

_PROPERTY = "urgency"


def priority_of(unit: WorkUnit) -> float:
    """Return the read priority, which is below 0 for backlogs."""
    return float(unit.properties.get(_PROPERTY, 0))


def by_priority(units: Iterable[WorkUnit]) -> list[WorkUnit]:
    """Sort work units by descending priority, and keep their order within datasets."""
    return sorted(units, key=priority_of, reverse=True)


def with_priorities(freshness: Freshness, plans: Sequence[DatasetPlan], lags: Mapping[str, Lag]) -> list[DatasetPlan]:
    """Return the plans with read priorities: a dataset's lag divided by its freshness target; 0 without a target.

    A dataset with a backlog gets a priority from -1 to 0, in the same order. An unknown lag counts as one second.

    Args:
        lags: lags by dataset URN.
    """
    prioritized: list[DatasetPlan] = []
    for plan in plans:
        target_s, lag = freshness.target_of(plan.dataset_urn), lags.get(plan.dataset_urn)
        seconds = lag.seconds if lag is not None and lag.seconds is not None else 1.0
        lag_ratio = seconds / target_s if target_s else 0.0
        is_backlogged = 0 < freshness.records_per_run <= sum(unit.size for unit in plan.work_units)
        priority = lag_ratio / (1 + lag_ratio) - 1 if is_backlogged else lag_ratio  # [-1, 0), in the same order
        units = tuple(
            replace(unit, properties={**unit.properties, _PROPERTY: f"{priority:.6f}"}) for unit in plan.work_units
        )
        prioritized.append(replace(plan, work_units=units))
    return prioritized
