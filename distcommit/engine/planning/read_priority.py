"""What is read first: what is furthest behind its freshness target, and what has a backlog after all that has none.

The order is put into the work units of a plan as a number, by which each task reads what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from distcommit.core.errors import DistcommitError, error_text
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.freshness import BEHIND
from distcommit.core.records.log_records import DatasetState
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.engine.driver.counts import PlanCounts
from distcommit.engine.driver.reports import Tally
from distcommit.engine.settings import RunSettings

logger = logging.getLogger(__name__)

_PROPERTY = "urgency"
_AT_ONCE = 20_000
"""Positions that a partition reads in less time than it takes to ask how old they are."""


def urgency_of(unit: WorkUnit) -> float:
    """What is read first has most; below 0 of a dataset that is backlogged."""
    return float(unit.properties.get(_PROPERTY, 0))


def by_urgency(units: Iterable[WorkUnit]) -> list[WorkUnit]:
    """The same, the most urgent first, those of one dataset in their order."""
    return sorted(units, key=urgency_of, reverse=True)


def with_urgency(
    settings: RunSettings,
    plans: Sequence[DatasetPlan],
    states: Mapping[str, DatasetState],
    tally: Tally[PlanCounts],
) -> list[DatasetPlan]:
    """A partition's plans with their urgency: how many times its target a dataset is behind its source. Where there is
    little to read nobody asks, and those with the smallest targets are first.

    Args:
        settings: the run.
        plans: all that the partition has planned.
        states: what is stored of its datasets.
        tally: is told which datasets are behind their targets.
    """
    freshness = settings.freshness
    if not freshness:
        return list(plans)
    much = sum(unit.size for plan in plans for unit in plan.work_units) > _AT_ONCE
    lags = _lags(settings, plans, states) if much else {}
    found: list[DatasetPlan] = []
    for plan in plans:
        target_s, lag = freshness.target_of(plan.dataset_urn), lags.get(plan.dataset_urn)
        seconds = lag.seconds if lag is not None and lag.seconds is not None else 1.0
        times = seconds / target_s if target_s else 0.0
        size = sum(unit.size for unit in plan.work_units)
        if lag is not None and lag.seconds is not None and seconds > target_s:
            later = (lag.records or 0) - size
            waits = f"; {later:,} records wait for later runs" if later > 0 else ""
            tally.note(plan.dataset_urn, BEHIND, f"{seconds:,.0f} s behind its source, target {target_s:g} s{waits}")
        backlogged = 0 < freshness.records_per_run <= size
        urgency = times / (1 + times) - 1 if backlogged else times  # [-1, 0), in the same order
        units = tuple(
            replace(unit, properties={**unit.properties, _PROPERTY: f"{urgency:.6f}"}) for unit in plan.work_units
        )
        found.append(replace(plan, work_units=units))
    return found


def _lags(settings: RunSettings, plans: Sequence[DatasetPlan], states: Mapping[str, DatasetState]) -> Mapping[str, Lag]:
    """How far datasets with a target are behind, of those that are known; nothing if the source does not say."""
    wanted = {
        plan.dataset_urn: states[plan.dataset_urn]
        for plan in plans
        if plan.dataset_urn in states and settings.freshness.target_of(plan.dataset_urn)
    }
    try:
        return {lag.dataset_urn: lag for lag in settings.flow.source.lags(wanted)} if wanted else {}
    except Exception as error:  # noqa: BLE001 - a source's own code; the plan stands without it
        text = str(error) if isinstance(error, DistcommitError) else error_text(error)
        logger.warning("how far datasets are behind is not known: %s", text)
        return {}
