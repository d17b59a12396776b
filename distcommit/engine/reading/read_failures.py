"""What a run could not read of its datasets, and what their log is told of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from distcommit.core.error_kinds import is_outage
from distcommit.core.errors import DistcommitError, FencedError, reason_text
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.read_failures import UnreadDataset
from distcommit.core.support.io_batching import Work
from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.engine.driver.counts import DrainCounts
from distcommit.engine.driver.reports import Tally
from distcommit.engine.settings import RunSettings
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.logs.log import CommitLog

logger = logging.getLogger(__name__)


def noting_unread(
    log: CommitLog,
    settings: RunSettings,
    plans: Iterable[DatasetPlan],
    nothing: Mapping[str, tuple[str, bool]],
    tally: Tally[DrainCounts],
) -> Work[None]:
    """Tells the log once, by one record, which datasets this run could not read, and the tally which of them no run
    plans any more. Where the log can't be written, the run's result has to do: nothing but counts depends on it.

    Args:
        log: the bucket's, as the drain has just seen it.
        settings: the run.
        plans: what it intended for the bucket's datasets.
        nothing: by dataset, why it commits nothing of it, and whether that is a failure.
        tally: what became of the datasets.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    try:
        found = list(_unread(log.latest(), settings.epoch, plans, nothing))
        if not found:
            return
        wanted = partial(
            next_record.unread, epoch=settings.epoch, found=found, stop_after=settings.stop_after_failed_runs
        )
        fold = yield from log.settling(wanted)
        require_fence(fold, settings.epoch, log.folder)
    except FencedError:
        raise
    except (DistcommitError, OSError) as error:
        logger.warning("what could not be read could not be stored: %s", error, extra={"log": log.folder})
        return
    for one in found:
        state = fold.state_of(one.dataset_urn)
        if state.is_stopped:
            tally.explain(one.dataset_urn, "stopped", why_stopped(state))


def why_stopped(state: DatasetState) -> str:
    """Why no run plans a dataset, and what to do about it; empty if runs do."""
    if state.unread is None or not state.unread.stopped:
        return ""
    told = f"{state.unread.failed_runs} runs in a row could not read it, and none tries again until"
    release = f"distcommit dataset release JOB.yaml {state.dataset_urn} retry"
    return f"{told} `{release}`: {state.unread.reason}"


def _unread(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], nothing: Mapping[str, tuple[str, bool]]
) -> Iterator[UnreadDataset]:
    for plan in plans:
        state = fold.state_of(plan.dataset_urn)
        reason, failed = nothing.get(plan.dataset_urn, ("", False))
        low = plan.planned_low
        if state.done_epoch == epoch and state.done_left_out:
            reason, failed, low = state.done_left_out, True, state.watermark
        ends = _ends(plan, low)
        if failed and (ends or any(_is_open(unit) for unit in plan.work_units)):
            high = Watermark(ends, plan.work_units[0].expected_high.incarnation)
            yield UnreadDataset(plan.dataset_urn, low, high, reason_text(reason, 1000), outage=is_outage(reason))


def _is_open(unit: WorkUnit) -> bool:
    """Whether it is not known of a partition where it was to end."""
    return unit.low.positions.keys() != unit.expected_high.positions.keys()


def _ends(plan: DatasetPlan, reached: Watermark | None) -> dict[str, Position]:
    """Where the plan was to end in partitions in which the watermark is not there yet."""
    before = reached.positions if reached else {}
    ends: dict[str, Position] = {}
    for unit in plan.work_units:
        for partition, high in unit.expected_high.positions.items():
            is_read = partition in before and at_or_past(before[partition], high)
            if not is_read and (partition not in ends or at_or_past(high, ends[partition])):
                ends[partition] = high
    return ends
