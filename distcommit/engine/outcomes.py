"""What became of each dataset of a plan, as the log tells it, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distcommit.engine.counts import DrainCounts
from distcommit.engine.failures import Failure
from distcommit.engine.reports import Tally
from distcommit.model.errors import printable
from distcommit.model.log_records import DatasetStatus
from distcommit.model.work import DatasetPlan, positions_lost
from distcommit.protocol.fold import Fold

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Notes:
    """What a committer knows of datasets that the log does not tell, by dataset.

    `nothing`: why this run commits nothing of it, and whether that is a failure; `unpublished`: with at-least-once, why
    it could not be published, or with a publisher that replaces, why it can't be told what; `unfinished`: why its
    sequence could not be.
    """

    nothing: Mapping[str, tuple[str, bool]]
    unpublished: dict[str, Exception] = field(default_factory=dict)
    unfinished: dict[str, Failure] = field(default_factory=dict)


def count_outcomes(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: Notes, tally: Tally[DrainCounts]
) -> None:
    """After the drain: adds to the tally what became of each dataset of the plan."""
    tally.add(DrainCounts.total(_outcome_of(plan, fold, epoch, notes, tally) for plan in plans))


def count_held(fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: Notes, tally: Tally[DrainCounts]) -> None:
    """Job-level, after the drain: what the driver's decision rests on; and why it can't be made, as far as these
    datasets are to blame."""
    tally.add(DrainCounts.total(_held_of(plan, fold, epoch, notes, tally) for plan in plans))


def _outcome_of(plan: DatasetPlan, fold: Fold, epoch: int, notes: Notes, tally: Tally[DrainCounts]) -> DrainCounts:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.done_epoch == epoch:
        if state.done_left_out:
            tally.explain(urn, "partly failed", state.done_left_out)
        return DrainCounts(
            datasets_published=1,
            datasets_partial=1 if state.done_left_out else 0,
            records_published=state.done_records,
            files_published=state.done_files,
            positions_lost=_lost(plan),
        )
    if state.open is not None:
        failure = notes.unfinished.get(urn) or Failure("", state.open.reason, outage=state.open.outage)
        tally.explain(urn, "outage" if failure.outage else f"left {state.status.value}", failure.reason)
        quarantined = 1 if state.status is DatasetStatus.QUARANTINED else 0
        return DrainCounts(sequences_left=1, datasets_quarantined=quarantined)
    if urn in notes.nothing:
        return _nothing_of(urn, notes, tally)
    if urn in notes.unpublished:
        tally.explain(urn, "left unpublished", str(notes.unpublished[urn]))
        return DrainCounts(sequences_left=1)
    return _changed_by_hand(urn, tally)


def _held_of(plan: DatasetPlan, fold: Fold, epoch: int, notes: Notes, tally: Tally[DrainCounts]) -> DrainCounts:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.open is not None and state.open.sequence.epoch == epoch:
        if state.status is DatasetStatus.PENDING:
            return DrainCounts(datasets_held=1, datasets_sealed=1)
        tally.explain(urn, f"left {state.status.value}", state.open.reason)
        return DrainCounts(datasets_held=1)
    if urn in notes.nothing:
        nothing = _nothing_of(urn, notes, tally)  # if that is in order, it is as good as sealed
        return nothing + DrainCounts(datasets_sealed=nothing.datasets_unchanged)
    if urn in notes.unpublished:
        tally.explain(urn, "left unpublished", str(notes.unpublished[urn]))
        return DrainCounts(datasets_held=1)
    return _changed_by_hand(urn, tally)


def _nothing_of(urn: str, notes: Notes, tally: Tally[DrainCounts]) -> DrainCounts:
    reason, failed = notes.nothing[urn]
    if failed:
        tally.explain(urn, "failed", reason)
        return DrainCounts(datasets_failed=1)
    return DrainCounts(datasets_unchanged=1)


def _changed_by_hand(urn: str, tally: Tally[DrainCounts]) -> DrainCounts:
    tally.explain(urn, "failed", "its watermark was changed by hand while the run read it")
    return DrainCounts(datasets_failed=1)


def _lost(plan: DatasetPlan) -> int:
    """How many positions the plan gave up, which are told."""
    lost = positions_lost(plan.skipped)
    if lost:
        reasons = "; ".join(f"partition {skip.partition}: {skip.reason}" for skip in plan.skipped)
        logger.warning("%d positions of %s are lost: %s", lost, printable(plan.dataset_urn), printable(reasons))
    return lost
