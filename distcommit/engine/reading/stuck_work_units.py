"""Work units whose construct did not return from native code, so that their worker was killed: later attempts at the
task skip them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from distcommit.core.error_kinds import has_ended_its_worker
from distcommit.core.errors import ConfigurationError, DistcommitError, ProcessLostError
from distcommit.core.work import TaskOutcome, TaskState, WorkUnit
from distcommit.engine.driver.launch import JobFailedError, Launch
from distcommit.engine.settings import RunSettings

logger = logging.getLogger(__name__)


def left_of(units: Sequence[WorkUnit], states: Iterable[TaskState]) -> tuple[list[WorkUnit], int]:
    """Return the work units to be read after earlier attempts at their task, and how many failed ones are not: those
    that have killed a worker."""
    states = list(states)
    finished = {state.work_unit_id for state in states if state.outcome is TaskOutcome.SUCCEEDED}
    deadly = {state.work_unit_id for state in states if has_ended_its_worker(state.error)} - finished
    left = [unit for unit in units if unit.work_unit_id not in finished | deadly]
    return left, sum(1 for unit in units if unit.work_unit_id in deadly)


class StuckUnits(msgspec.Struct, frozen=True):
    """How many work units of a partition have killed a worker in this run."""

    number: int


def count_stuck(settings: RunSettings, partition: int) -> StuckUnits:
    """Count the work units of the partition's buckets that have killed a worker in this run."""
    buckets = settings.buckets_of(partition)
    tables = settings.task_states(buckets)
    try:
        states = [state for bucket in buckets for state in tables.take(bucket, anew=True)[0]]
    except (DistcommitError, OSError) as error:
        logger.warning("task states can't be read: %s", error, extra={"partition": partition})
        return StuckUnits(0)
    return StuckUnits(len({state.work_unit_id for state in states if has_ended_its_worker(state.error)}))


def stuck_units(launch: Launch, settings: RunSettings) -> int:
    """Return how many work units have killed a worker in this run; 0 if that can't be known."""
    try:
        found = launch(count_stuck, settings, settings.partitions, StuckUnits)
    except (JobFailedError, ConfigurationError, ProcessLostError) as error:
        logger.warning("work units that have killed a worker can't be counted: %s", error)
        return 0
    return sum(each.number for each in found)
