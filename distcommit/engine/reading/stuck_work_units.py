"""Stuck work units: a construct did not return from native code, so that the worker was killed. Later attempts at the
task skip them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from distcommit.core.error_kinds import has_killed_its_worker
from distcommit.core.errors import ConfigurationError, DistcommitError, ProcessLostError
from distcommit.core.work import TaskOutcome, TaskState, WorkUnit
from distcommit.engine.driver.launch import JobFailedError, Launch
from distcommit.engine.settings import RunSettings

logger = logging.getLogger(__name__)


def units_to_read(units: Sequence[WorkUnit], states: Iterable[TaskState]) -> tuple[list[WorkUnit], int]:
    """Return the work units that earlier attempts at the task left to read, and the number of stuck ones, which are
    skipped."""
    states = list(states)
    finished = {state.work_unit_id for state in states if state.outcome is TaskOutcome.SUCCEEDED}
    stuck = {state.work_unit_id for state in states if has_killed_its_worker(state.error)} - finished
    remaining = [unit for unit in units if unit.work_unit_id not in finished | stuck]
    return remaining, sum(1 for unit in units if unit.work_unit_id in stuck)


class StuckUnits(msgspec.Struct, frozen=True):
    """Number of work units of a partition that have killed a worker in this run."""

    number: int


def count_stuck_units(settings: RunSettings, partition: int) -> StuckUnits:
    """Count the stuck work units of the partition's buckets in this run."""
    buckets = settings.buckets_of(partition)
    tables = settings.task_states(buckets)
    try:
        states = [state for bucket in buckets for state in tables.take(bucket, from_start=True)[0]]
    except (DistcommitError, OSError) as error:
        logger.warning("task states cannot be read: %s", error, extra={"partition": partition})
        return StuckUnits(0)
    return StuckUnits(len({state.work_unit_id for state in states if has_killed_its_worker(state.error)}))


def total_stuck_units(launch: Launch, settings: RunSettings) -> int:
    """Return the number of stuck work units in this run; 0 if it is unknown."""
    try:
        counts = launch(count_stuck_units, settings, settings.partitions, StuckUnits)
    except (JobFailedError, ConfigurationError, ProcessLostError) as error:
        logger.warning("stuck work units cannot be counted: %s", error)
        return 0
    return sum(count.number for count in counts)
