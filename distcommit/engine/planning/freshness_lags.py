"""Lags of datasets behind their sources and freshness targets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from distcommit.core.errors import error_text
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.freshness_targets import BEHIND, Freshness
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import DatasetPlan
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.run_settings import RunSettings

logger = logging.getLogger(__name__)

_QUICKLY_READ = 20_000
"""A partition reads this many positions in less time than the source needs to report how old they are."""


def known_lags(
    settings: RunSettings, plans: Sequence[DatasetPlan], states: Mapping[str, DatasetState]
) -> Mapping[str, Lag]:
    """Return known lags of datasets with a freshness target; if there is little to read, the source is not asked."""
    if sum(unit.size for plan in plans for unit in plan.work_units) <= _QUICKLY_READ:
        return {}
    states_with_target = {
        plan.dataset_urn: states[plan.dataset_urn]
        for plan in plans
        if plan.dataset_urn in states and settings.freshness.target_of(plan.dataset_urn)
    }
    if not states_with_target:
        return {}
    try:
        return {lag.dataset_urn: lag for lag in settings.flow.source.lags(states_with_target)}
    except Exception as error:  # noqa: BLE001 - code of the source; the plan does not need lags
        text = error_text(error)
        logger.warning("lags of datasets are unknown: %s", text)
        return {}


def note_datasets_behind(
    freshness: Freshness, plans: Sequence[DatasetPlan], lags: Mapping[str, Lag], tally: Tally
) -> None:
    for plan in plans:
        target_s, lag = freshness.target_of(plan.dataset_urn), lags.get(plan.dataset_urn)
        if lag is not None and lag.seconds is not None and lag.seconds > target_s:
            remaining = (lag.records or 0) - sum(unit.size for unit in plan.work_units)
            backlog = f"; left for later runs: {count_of(remaining, 'record')}" if remaining > 0 else ""
            text = f"{lag.seconds:,.0f} s behind its source, target {target_s:g} s{backlog}"
            tally.note(plan.dataset_urn, BEHIND, text)
