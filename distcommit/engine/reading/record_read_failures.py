"""The record of datasets that a run failed to read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from distcommit.core.error_handling.error_text_classification import is_outage
from distcommit.core.errors import DistcommitError, FencedError, reason_text
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.read_failure_records import DatasetReadFailure
from distcommit.core.support.io_batching import BatchedWork
from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.committing.dataset_outcomes import NotCommitted
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import require_fence

logger = logging.getLogger(__name__)


def record_read_failures(
    log: CommitLog,
    settings: RunSettings,
    plans: Iterable[DatasetPlan],
    not_committed: Mapping[str, NotCommitted],
    tally: Tally,
) -> BatchedWork[None]:
    """Record once, in one record, which datasets this run failed to read. Report the datasets that the record stops.

    If the log cannot be written, the error is only logged: only failure counts depend on the record.

    Args:
        log: log of the bucket, as the drain has read it.
        not_committed: by dataset, why this run commits nothing.
        tally: receives a reason for each stopped dataset.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    try:
        failures = list(_read_failures(log.latest(), settings.epoch, plans, not_committed))
        if not failures:
            return
        record = partial(
            next_log_record.read_failures,
            epoch=settings.epoch,
            failures=failures,
            stop_after=settings.stop_after_failed_runs,
        )
        fold = yield from log.settle(record)
        require_fence(fold, settings.epoch, log.folder)
    except FencedError:
        raise
    except (DistcommitError, OSError) as error:
        logger.warning("read failures could not be recorded: %s", error, extra={"log": log.folder})
        return
    for failure in failures:
        state = fold.state_of(failure.dataset_urn)
        if state.is_stopped:
            tally.add_reason(failure.dataset_urn, "stopped", stop_reason(state))


def stop_reason(state: DatasetState) -> str:
    """Return why a dataset is stopped, with the remedy; empty if it is not stopped."""
    if state.read_failure is None or not state.read_failure.stopped:
        return ""
    text = f"{state.read_failure.failed_runs} runs in a row could not read it; no run tries again until"
    release = f"distcommit dataset release JOB.yaml {state.dataset_urn} retry"
    return f"{text} `{release}`: {state.read_failure.reason}"


def _read_failures(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], not_committed: Mapping[str, NotCommitted]
) -> Iterator[DatasetReadFailure]:
    for plan in plans:
        state = fold.state_of(plan.dataset_urn)
        reason, failed, run = not_committed.get(plan.dataset_urn, NotCommitted("", False))
        low = plan.planned_low
        if state.done_epoch == epoch and state.done_partial_reason:
            reason, failed, low = state.done_partial_reason, True, state.watermark
        ends = _failed_ends(plan, low)
        if failed and (ends or any(_is_open(unit) for unit in plan.work_units)):
            high = Watermark(ends, plan.work_units[0].expected_high.incarnation)
            text, outage = reason_text(reason, 1000), is_outage(reason)
            yield DatasetReadFailure(plan.dataset_urn, low, high, text, outage=outage, run=run)


def _is_open(unit: WorkUnit) -> bool:
    return unit.low.positions.keys() != unit.expected_high.positions.keys()


def _failed_ends(plan: DatasetPlan, reached: Watermark | None) -> dict[str, Position]:
    before = reached.positions if reached else {}
    ends: dict[str, Position] = {}
    for unit in plan.work_units:
        for partition, high in unit.expected_high.positions.items():
            is_read = partition in before and at_or_past(before[partition], high)
            if not is_read and (partition not in ends or at_or_past(high, ends[partition])):
                ends[partition] = high
    return ends
