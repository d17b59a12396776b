"""The outcome of each dataset of a plan, from the bucket's log and the committer's notes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from distcommit.core.errors import printable
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.work import DatasetPlan, positions_lost
from distcommit.engine.driver.counts import DrainCounts
from distcommit.engine.driver.reports import Tally
from distcommit.protocol.fold import Fold
from distcommit.steps.failures import Failure
from distcommit.stores.history.run_datasets import RunDataset

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DatasetNotes:
    """Facts about datasets that a committer knows and the log does not contain, by dataset.

    Attributes:
        nothing: why this run commits nothing of it, and whether that is a failure.
        unpublished: with at-least-once, why it could not be published; with a publisher that replaces, why its
            replacement could not be staged.
        unfinished: why its sequence could not be finished.
    """

    not_committed: Mapping[str, tuple[str, bool]]
    unpublished: dict[str, Exception] = field(default_factory=dict)
    unfinished: dict[str, Failure] = field(default_factory=dict)


class Outcome(NamedTuple):
    """The outcome of a dataset: its counts, a word for it, and kind and reason of a failure."""

    counts: DrainCounts
    word: str
    kind: str = ""
    reason: str = ""


def count_outcomes(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: DatasetNotes, tally: Tally[DrainCounts]
) -> dict[str, Outcome]:
    """After the drain: count the outcome of each dataset of the plan, and return it."""
    return _count({plan.dataset_urn: _outcome_of(plan, fold, epoch, notes) for plan in plans}, tally)


def count_held(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: DatasetNotes, tally: Tally[DrainCounts]
) -> dict[str, Outcome]:
    """Job-level, after the drain: count the outcomes on which the driver's decision depends, and return them."""
    return _count({plan.dataset_urn: _held_of(plan, fold, epoch, notes) for plan in plans}, tally)


def rows_of(outcomes: Mapping[str, Outcome], bucket: int) -> list[RunDataset]:
    """Return the rows of the run's table of datasets."""
    return [
        RunDataset(
            urn,
            bucket,
            outcome.word,
            outcome.counts.records_published,
            outcome.counts.files_published,
            outcome.counts.positions_lost,
            outcome.kind,
            outcome.reason,
        )
        for urn, outcome in outcomes.items()
    ]


def _count(outcomes: dict[str, Outcome], tally: Tally[DrainCounts]) -> dict[str, Outcome]:
    for urn, outcome in outcomes.items():
        if outcome.kind:
            tally.add_reason(urn, outcome.kind, outcome.reason)
    tally.add(DrainCounts.total(outcome.counts for outcome in outcomes.values()))
    return outcomes


def _outcome_of(plan: DatasetPlan, fold: Fold, epoch: int, notes: DatasetNotes) -> Outcome:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.done_epoch == epoch:
        counts = DrainCounts(
            datasets_published=1,
            datasets_partial=1 if state.done_left_out else 0,
            records_published=state.done_records,
            files_published=state.done_files,
            positions_lost=_positions_lost(plan),
        )
        if state.done_left_out:
            return Outcome(counts, "partly published", "partly failed", state.done_left_out)
        return Outcome(counts, "published")
    if state.open is not None:
        failure = notes.unfinished.get(urn) or Failure("", state.open.reason, outage=state.open.outage)
        quarantined = state.status is DatasetStatus.QUARANTINED
        counts = DrainCounts(sequences_left=1, datasets_quarantined=1 if quarantined else 0)
        kind = "outage" if failure.outage else f"left {state.status.value}"
        return Outcome(counts, "quarantined" if quarantined else "left", kind, failure.reason)
    if urn in notes.not_committed:
        return _outcome_without_commit(urn, notes)
    if urn in notes.unpublished:
        return Outcome(DrainCounts(sequences_left=1), "left", "left unpublished", str(notes.unpublished[urn]))
    return _WATERMARK_CHANGED


def _held_of(plan: DatasetPlan, fold: Fold, epoch: int, notes: DatasetNotes) -> Outcome:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.open is not None and state.open.sequence.epoch == epoch:
        if state.status is DatasetStatus.PENDING:
            return Outcome(DrainCounts(datasets_held=1, datasets_sealed=1), "held")
        return Outcome(DrainCounts(datasets_held=1), "held", f"left {state.status.value}", state.open.reason)
    if urn in notes.not_committed:
        not_committed = _outcome_without_commit(urn, notes)  # a dataset with nothing to publish counts as sealed
        return not_committed._replace(
            counts=not_committed.counts + DrainCounts(datasets_sealed=not_committed.counts.datasets_unchanged)
        )
    if urn in notes.unpublished:
        return Outcome(DrainCounts(datasets_held=1), "held", "left unpublished", str(notes.unpublished[urn]))
    return _WATERMARK_CHANGED


def _outcome_without_commit(urn: str, notes: DatasetNotes) -> Outcome:
    reason, failed = notes.not_committed[urn]
    if failed:
        return Outcome(DrainCounts(datasets_failed=1), "failed", "failed", reason)
    return Outcome(DrainCounts(datasets_unchanged=1), "unchanged")


_WATERMARK_CHANGED = Outcome(
    DrainCounts(datasets_failed=1), "failed", "failed", "an operator changed its watermark while the run read it"
)


def _positions_lost(plan: DatasetPlan) -> int:
    """Return the number of positions that the plan skipped as lost, and log them."""
    lost = positions_lost(plan.skipped)
    if lost:
        reasons = "; ".join(f"partition {skip.partition}: {skip.reason}" for skip in plan.skipped)
        logger.warning("%d positions of %s are lost: %s", lost, printable(plan.dataset_urn), printable(reasons))
    return lost
