"""The outcome of each planned dataset, from the log and `DatasetNotes`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from distcommit.core.errors import printable
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.work_units import DatasetPlan, positions_lost
from distcommit.engine.driver.task_reports import Tally
from distcommit.protocol.log_state import Fold
from distcommit.steps.failure_classification import Failure
from distcommit.stores.history.run_table import DatasetOutcome, TableRow, outcome_row

logger = logging.getLogger(__name__)


class NotCommitted(NamedTuple):
    """The reason why a run commits nothing of a dataset.

    Attributes:
        reason: text of the reason.
        failed: whether an error is the cause.
        run: the results of the work units; None if nothing failed.
    """

    reason: str
    failed: bool
    run: PreviousRun | None = None


@dataclass(slots=True)
class DatasetNotes:
    """Facts that the log lacks, by dataset.

    Attributes:
        not_committed: why nothing is committed.
        unpublished: why at-least-once could not publish, or a replacement could not be staged.
        unfinished: why the sequence stays open.
    """

    not_committed: Mapping[str, NotCommitted]
    unpublished: dict[str, Exception] = field(default_factory=dict)
    unfinished: dict[str, Failure] = field(default_factory=dict)


def count_outcomes(
    fold: Fold, epoch: int, bucket: int, plans: Iterable[DatasetPlan], notes: DatasetNotes, tally: Tally
) -> list[TableRow]:
    return _count([_outcome_of(plan, fold, epoch, bucket, notes) for plan in plans], tally)


def count_held(
    fold: Fold, epoch: int, bucket: int, plans: Iterable[DatasetPlan], notes: DatasetNotes, tally: Tally
) -> list[TableRow]:
    """Count and return the outcomes for an all-or-none job's decision."""
    return _count([_held_of(plan, fold, epoch, bucket, notes) for plan in plans], tally)


def outcomes_of_open(fold: Fold, bucket: int) -> Iterator[TableRow]:
    for state in fold.datasets.values():
        if state.open is not None:
            yield outcome_row(
                state.dataset_urn,
                bucket,
                DatasetOutcome.POSTPONED if state.status is DatasetStatus.PENDING else DatasetOutcome.QUARANTINED,
                kind=f"left {state.status.value}",
                reason=state.open.reason,
            )


def _count(rows: list[TableRow], tally: Tally) -> list[TableRow]:
    for row in rows:
        if row.kind:
            tally.add_reason(row.dataset, row.kind, row.reason)
    tally.add(RunCounts.total(row.counts for row in rows))
    return rows


def _outcome_of(plan: DatasetPlan, fold: Fold, epoch: int, bucket: int, notes: DatasetNotes) -> TableRow:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.done_epoch == epoch:
        counts = RunCounts(
            datasets_published=1,
            datasets_partial=1 if state.done_partial_reason else 0,
            records_published=state.done_records,
            files_published=state.done_files,
            positions_lost=_lost_positions(plan),
        )
        if state.done_partial_reason:
            partly, reason = DatasetOutcome.PARTLY_PUBLISHED, state.done_partial_reason
            return outcome_row(urn, bucket, partly, counts, "partly failed", reason)
        return outcome_row(urn, bucket, DatasetOutcome.PUBLISHED, counts)
    if state.open is not None:
        failure = notes.unfinished.get(urn) or Failure("", state.open.reason, outage=state.open.outage)
        quarantined = state.status is DatasetStatus.QUARANTINED
        outcome = DatasetOutcome.QUARANTINED if quarantined else DatasetOutcome.POSTPONED
        counts = RunCounts(sequences_postponed=1, datasets_quarantined=1 if quarantined else 0)
        kind = "outage" if failure.outage else f"left {state.status.value}"
        return outcome_row(urn, bucket, outcome, counts, kind, failure.reason)
    if urn in notes.not_committed:
        return _outcome_without_commit(urn, bucket, notes)
    if urn in notes.unpublished:
        reason = str(notes.unpublished[urn])
        return outcome_row(
            urn, bucket, DatasetOutcome.POSTPONED, RunCounts(sequences_postponed=1), "unpublished", reason
        )
    return _watermark_changed(urn, bucket)


def _held_of(plan: DatasetPlan, fold: Fold, epoch: int, bucket: int, notes: DatasetNotes) -> TableRow:
    urn, held = plan.dataset_urn, RunCounts(datasets_held=1)
    state = fold.state_of(urn)
    if state.open is not None and state.open.sequence.epoch == epoch:
        if state.status is DatasetStatus.PENDING:
            return outcome_row(urn, bucket, DatasetOutcome.HELD, RunCounts(datasets_held=1, datasets_sealed=1))
        return outcome_row(urn, bucket, DatasetOutcome.HELD, held, f"left {state.status.value}", state.open.reason)
    if urn in notes.not_committed:
        row = _outcome_without_commit(urn, bucket, notes)  # a dataset with nothing to publish counts as sealed
        return replace(row, counts=row.counts + RunCounts(datasets_sealed=row.counts.datasets_unchanged))
    if urn in notes.unpublished:
        return outcome_row(urn, bucket, DatasetOutcome.HELD, held, "unpublished", str(notes.unpublished[urn]))
    return _watermark_changed(urn, bucket)


def _outcome_without_commit(urn: str, bucket: int, notes: DatasetNotes) -> TableRow:
    reason, failed, _ = notes.not_committed[urn]
    if failed:
        return outcome_row(urn, bucket, DatasetOutcome.FAILED, RunCounts(datasets_failed=1), "failed", reason)
    return outcome_row(urn, bucket, DatasetOutcome.UNCHANGED, RunCounts(datasets_unchanged=1))


def _watermark_changed(urn: str, bucket: int) -> TableRow:
    reason = "an operator changed its watermark while the run read it"
    return outcome_row(urn, bucket, DatasetOutcome.FAILED, RunCounts(datasets_failed=1), "failed", reason)


def _lost_positions(plan: DatasetPlan) -> int:
    lost_count = positions_lost(plan.skipped)
    if lost_count:
        reasons = "; ".join(f"partition {skip.partition}: {skip.reason}" for skip in plan.skipped)
        logger.warning("%d positions of %s are lost: %s", lost_count, printable(plan.dataset_urn), printable(reasons))
    return lost_count
