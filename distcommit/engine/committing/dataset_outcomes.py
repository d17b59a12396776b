"""What became of each dataset of a plan, as the log tells it, and why."""

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
class Notes:
    """What a committer knows of datasets that the log does not tell, by dataset.

    `nothing`: why this run commits nothing of it, and whether that is a failure; `unpublished`: with at-least-once, why
    it could not be published, or with a publisher that replaces, why it can't be told what; `unfinished`: why its
    sequence could not be.
    """

    nothing: Mapping[str, tuple[str, bool]]
    unpublished: dict[str, Exception] = field(default_factory=dict)
    unfinished: dict[str, Failure] = field(default_factory=dict)


class Outcome(NamedTuple):
    """What became of a dataset: in counts, in a word, and why if it did not go through as a whole."""

    counts: DrainCounts
    word: str
    kind: str = ""
    reason: str = ""


def count_outcomes(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: Notes, tally: Tally[DrainCounts]
) -> dict[str, Outcome]:
    """After the drain: adds to the tally what became of each dataset of the plan, and returns it."""
    return _counted({plan.dataset_urn: _outcome_of(plan, fold, epoch, notes) for plan in plans}, tally)


def count_held(
    fold: Fold, epoch: int, plans: Iterable[DatasetPlan], notes: Notes, tally: Tally[DrainCounts]
) -> dict[str, Outcome]:
    """Job-level, after the drain: what the driver's decision rests on; and why it can't be made, as far as these
    datasets are to blame."""
    return _counted({plan.dataset_urn: _held_of(plan, fold, epoch, notes) for plan in plans}, tally)


def rows_of(outcomes: Mapping[str, Outcome], bucket: int) -> list[RunDataset]:
    """The outcomes as the run's table has them."""
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


def _counted(outcomes: dict[str, Outcome], tally: Tally[DrainCounts]) -> dict[str, Outcome]:
    for urn, outcome in outcomes.items():
        if outcome.kind:
            tally.explain(urn, outcome.kind, outcome.reason)
    tally.add(DrainCounts.total(outcome.counts for outcome in outcomes.values()))
    return outcomes


def _outcome_of(plan: DatasetPlan, fold: Fold, epoch: int, notes: Notes) -> Outcome:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.done_epoch == epoch:
        counts = DrainCounts(
            datasets_published=1,
            datasets_partial=1 if state.done_left_out else 0,
            records_published=state.done_records,
            files_published=state.done_files,
            positions_lost=_lost(plan),
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
    if urn in notes.nothing:
        return _nothing_of(urn, notes)
    if urn in notes.unpublished:
        return Outcome(DrainCounts(sequences_left=1), "left", "left unpublished", str(notes.unpublished[urn]))
    return _CHANGED_BY_HAND


def _held_of(plan: DatasetPlan, fold: Fold, epoch: int, notes: Notes) -> Outcome:
    urn = plan.dataset_urn
    state = fold.state_of(urn)
    if state.open is not None and state.open.sequence.epoch == epoch:
        if state.status is DatasetStatus.PENDING:
            return Outcome(DrainCounts(datasets_held=1, datasets_sealed=1), "held")
        return Outcome(DrainCounts(datasets_held=1), "held", f"left {state.status.value}", state.open.reason)
    if urn in notes.nothing:
        nothing = _nothing_of(urn, notes)  # if that is in order, it is as good as sealed
        return nothing._replace(counts=nothing.counts + DrainCounts(datasets_sealed=nothing.counts.datasets_unchanged))
    if urn in notes.unpublished:
        return Outcome(DrainCounts(datasets_held=1), "held", "left unpublished", str(notes.unpublished[urn]))
    return _CHANGED_BY_HAND


def _nothing_of(urn: str, notes: Notes) -> Outcome:
    reason, failed = notes.nothing[urn]
    if failed:
        return Outcome(DrainCounts(datasets_failed=1), "failed", "failed", reason)
    return Outcome(DrainCounts(datasets_unchanged=1), "unchanged")


_CHANGED_BY_HAND = Outcome(
    DrainCounts(datasets_failed=1), "failed", "failed", "its watermark was changed by hand while the run read it"
)


def _lost(plan: DatasetPlan) -> int:
    """How many positions the plan gave up, which are told."""
    lost = positions_lost(plan.skipped)
    if lost:
        reasons = "; ".join(f"partition {skip.partition}: {skip.reason}" for skip in plan.skipped)
        logger.warning("%d positions of %s are lost: %s", lost, printable(plan.dataset_urn), printable(reasons))
    return lost
