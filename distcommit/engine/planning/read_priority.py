"""Read priority: datasets that are furthest behind their freshness target first, datasets with a backlog last.

The priority is a property of each work unit. Each task reads its work units by descending priority.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from distcommit.core.errors import error_text
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.freshness import BEHIND
from distcommit.core.records.log_records import DatasetState
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.run_settings import RunSettings

logger = logging.getLogger(__name__)

_PROPERTY = "urgency"
_QUICKLY_READ = 20_000
"""A partition reads this many positions in less time than the source needs to report how old they are."""


def priority_of(unit: WorkUnit) -> float:
    """Return the read priority: the work unit with the highest one is read first. Below 0 for a dataset with a
    backlog.
    """
    return float(unit.properties.get(_PROPERTY, 0))


def by_priority(units: Iterable[WorkUnit]) -> list[WorkUnit]:
    """Return the work units by descending priority. Work units of one dataset keep their order."""
    return sorted(units, key=priority_of, reverse=True)


def with_priorities(
    settings: RunSettings,
    plans: Sequence[DatasetPlan],
    states: Mapping[str, DatasetState],
    tally: Tally,
) -> list[DatasetPlan]:
    """Return the plans with read priorities: a dataset's lag divided by its freshness target; 0 without a target.

    A dataset with a backlog gets a priority from -1 to 0, in the same order. If there is little to read, the source is
    not asked for lags, and each lag counts as one second.

    Args:
        tally: receives a note for each dataset that is behind its target.
    """
    freshness = settings.freshness
    if not freshness:
        return list(plans)
    is_lag_worth_asking = sum(unit.size for plan in plans for unit in plan.work_units) > _QUICKLY_READ
    lags = _known_lags(settings, plans, states) if is_lag_worth_asking else {}
    prioritized: list[DatasetPlan] = []
    for plan in plans:
        target_s, lag = freshness.target_of(plan.dataset_urn), lags.get(plan.dataset_urn)
        seconds = lag.seconds if lag is not None and lag.seconds is not None else 1.0
        lag_ratio = seconds / target_s if target_s else 0.0
        size = sum(unit.size for unit in plan.work_units)
        if lag is not None and lag.seconds is not None and seconds > target_s:
            remaining = (lag.records or 0) - size
            backlog = f"; {remaining:,} records wait for later runs" if remaining > 0 else ""
            tally.note(plan.dataset_urn, BEHIND, f"{seconds:,.0f} s behind its source, target {target_s:g} s{backlog}")
        backlogged = 0 < freshness.records_per_run <= size
        urgency = lag_ratio / (1 + lag_ratio) - 1 if backlogged else lag_ratio  # [-1, 0), in the same order
        units = tuple(
            replace(unit, properties={**unit.properties, _PROPERTY: f"{urgency:.6f}"}) for unit in plan.work_units
        )
        prioritized.append(replace(plan, work_units=units))
    return prioritized


def _known_lags(
    settings: RunSettings, plans: Sequence[DatasetPlan], states: Mapping[str, DatasetState]
) -> Mapping[str, Lag]:
    """Return the lags of datasets with a freshness target, if the source can report them."""
    states_with_target = {
        plan.dataset_urn: states[plan.dataset_urn]
        for plan in plans
        if plan.dataset_urn in states and settings.freshness.target_of(plan.dataset_urn)
    }
    try:
        return (
            {lag.dataset_urn: lag for lag in settings.flow.source.lags(states_with_target)}
            if states_with_target
            else {}
        )
    except Exception as error:  # noqa: BLE001 - code of the source; the plan does not need lags
        text = error_text(error)
        logger.warning("lags of datasets are unknown: %s", text)
        return {}
