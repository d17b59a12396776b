"""What became of each dataset of a plan, as the log tells it, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distcommit.engine.counts import DrainCounts
from distcommit.engine.failures import Failure
from distcommit.engine.reports import Tally
from distcommit.model.errors import DistcommitError, printable
from distcommit.model.log_records import DatasetStatus
from distcommit.model.work import DatasetPlan, positions_lost
from distcommit.protocol.fold import Fold

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Notes:
    """What a committer knows of datasets that the log does not tell, by dataset.

    `nothing`: why this run commits nothing of it, and whether that is a failure; `unpublished`: with at-least-once, why
    it could not be published; `unfinished`: why its sequence could not be.
    """

    nothing: Mapping[str, tuple[str, bool]]
    unpublished: dict[str, DistcommitError] = field(default_factory=dict)
    unfinished: dict[str, Failure] = field(default_factory=dict)


def count_outcomes(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: Notes, tally: Tally[DrainCounts]
) -> None:
    """After the drain: adds to the tally what became of each dataset of the plan."""
    for plan in plans:
        urn = plan.dataset_urn
        state = fold.state_of(urn)
        if state.done_epoch == epoch:
            published = DrainCounts(
                datasets_published=1, records_published=state.done_records, files_published=state.done_files
            )
            tally.add(published)
            _count_lost(plan, tally)
            if state.done_left_out:
                tally.add(DrainCounts(datasets_partial=1))
                tally.explain(urn, "partly failed", state.done_left_out)
        elif state.sequence is not None:
            tally.add(DrainCounts(sequences_left=1))
            if state.status is DatasetStatus.QUARANTINED:
                tally.add(DrainCounts(datasets_quarantined=1))
            failure = notes.unfinished.get(urn) or Failure("", state.reason, outage=state.outage)
            kind = "outage" if failure.outage else f"left {state.status.value}"
            tally.explain(urn, kind, failure.reason)
        elif urn in notes.nothing:
            _count_nothing(urn, notes, tally)
        elif urn in notes.unpublished:
            tally.add(DrainCounts(sequences_left=1))
            tally.explain(urn, "left unpublished", str(notes.unpublished[urn]))
        else:
            _count_changed_by_hand(urn, tally)


def count_held(fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: Notes, tally: Tally[DrainCounts]) -> None:
    """Job-level, after the drain: what the driver's decision rests on; and why it can't be made, as far as these
    datasets are to blame."""
    for plan in plans:
        urn = plan.dataset_urn
        state = fold.state_of(urn)
        if state.sequence is not None and state.sequence.epoch == epoch:
            tally.add(DrainCounts(datasets_held=1))
            if state.status is DatasetStatus.PENDING:
                tally.add(DrainCounts(datasets_sealed=1))
            else:
                tally.explain(urn, f"left {state.status.value}", state.reason)
        elif urn in notes.nothing:
            if not notes.nothing[urn][1]:  # nothing to publish, and that is in order
                tally.add(DrainCounts(datasets_sealed=1))
            _count_nothing(urn, notes, tally)
        else:
            _count_changed_by_hand(urn, tally)


def _count_nothing(urn: str, notes: Notes, tally: Tally[DrainCounts]) -> None:
    reason, failed = notes.nothing[urn]
    if failed:
        tally.add(DrainCounts(datasets_failed=1))
        tally.explain(urn, "failed", reason)
    else:
        tally.add(DrainCounts(datasets_unchanged=1))


def _count_changed_by_hand(urn: str, tally: Tally[DrainCounts]) -> None:
    tally.add(DrainCounts(datasets_failed=1))
    tally.explain(urn, "failed", "its watermark was changed by hand while the run read it")


def _count_lost(plan: DatasetPlan, tally: Tally[DrainCounts]) -> None:
    lost = positions_lost(plan.skipped)
    if lost:
        tally.add(DrainCounts(positions_lost=lost))
        reasons = "; ".join(f"partition {skip.partition}: {skip.reason}" for skip in plan.skipped)
        logger.warning("%d positions of %s are lost: %s", lost, printable(plan.dataset_urn), printable(reasons))
