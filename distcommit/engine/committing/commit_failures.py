"""What a run makes of sequences that it could not finish: whose fault it is, and what their log is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from distcommit.core.errors import DistcommitError, FencedError, printable
from distcommit.core.interfaces.steps import CommitStep, StepContext
from distcommit.core.records.log_records import DatasetStatus, LeftSequence, SequenceName
from distcommit.core.support.io_batching import Work
from distcommit.engine.driver.counts import CommitCounts
from distcommit.engine.driver.reports import Tally
from distcommit.engine.reading.task_events import DatasetQuarantined
from distcommit.engine.settings import RunSettings
from distcommit.protocol import next_record
from distcommit.steps.failures import Failure, judged, judging
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.logs.log import CommitLog

logger = logging.getLogger(__name__)


def noting_left(log: CommitLog, epoch: int, left: Mapping[SequenceName, Failure]) -> Work[None]:
    """Tells the log why sequences stay pending, though nobody's attempt has failed, so that `status` can say it.

    What is known already is not told again; where the log can't be written either, the run's result has to do.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    try:
        for outage in {failure.outage for failure in left.values()}:
            told = [
                LeftSequence(name.dataset_urn, name.epoch, failure.reason)
                for name, failure in left.items()
                if failure.outage is outage
            ]
            fold = yield from log.settling(partial(next_record.leave, epoch=epoch, left=told, outage=outage))
            require_fence(fold, epoch, log.folder)
    except FencedError:
        raise
    except (DistcommitError, OSError) as error:
        logger.warning("why sequences are left could not be stored: %s", error, extra={"log": log.folder})


def noting_failed(
    log: CommitLog, epoch: int, name: SequenceName, failure: Failure, max_attempts: int
) -> Work[DatasetStatus]:
    """Counts this run's attempt at a sequence, once, and quarantines it at the last; at once, if it is lost.

    Returns:
        where its dataset stands then.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    fold = yield from log.settling(
        partial(
            next_record.fail,
            epoch=epoch,
            name=name,
            reason=failure.reason,
            for_good=failure.lost,
            max_attempts=max_attempts,
        )
    )
    require_fence(fold, epoch, log.folder)
    return fold.state_of(name.dataset_urn).status


def noting_failures(
    log: CommitLog,
    settings: RunSettings,
    context: StepContext,
    bucket: int,
    failed: Mapping[SequenceName, DistcommitError],
    loaded: Mapping[SequenceName, Sequence[CommitStep]],
    tally: Tally[CommitCounts],
    *,
    replaying: bool,
    last: bool,
) -> Work[dict[str, Failure]]:
    """Reports what could not be finished, and tells the log. What is lost is quarantined at once. Else a failure in
    replay is this run's attempt, unless its target does not work, or this program's age or sink is to blame.

    Args:
        log: the bucket's.
        settings: the run.
        context: where the steps' effects go.
        bucket: whose sequences they are.
        failed: why each failed.
        loaded: the steps, of those whose steps could be read.
        tally: where counts, reasons and events go.
        replaying: whether an older run had sealed them.
        last: whether nobody in this run comes after: then the log is told what is left, and why.

    Returns:
        what is not finished, by dataset.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    fold = log.refresh()  # what another committer has closed meanwhile had the better view
    open_still = {name: error for name, error in failed.items() if fold.sequence(name) is not None}
    failures = (
        (yield from judging(open_still, loaded, context, bucket))
        if last
        else {name: judged(error) for name, error in open_still.items()}
    )
    left: dict[SequenceName, Failure] = {}
    for name, failure in failures.items():
        tally.explain(name.dataset_urn, failure.kind, failure.reason)
        tally.add(CommitCounts(executions_failed=1))
        if failure.lost or (replaying and not failure.outage and not failure.not_for_us):
            status = yield from noting_failed(log, settings.epoch, name, failure, settings.max_attempts)
            if status is DatasetStatus.QUARANTINED:
                tally.add(CommitCounts(datasets_quarantined=1))
                quarantined = DatasetQuarantined(name.dataset_urn, name.epoch, failure.reason, settings.clock.now_ms())
                tally.observe(quarantined)
                ids = {"dataset": printable(name.dataset_urn), "epoch": name.epoch}
                logger.error("dataset quarantined: %s", failure.reason, extra=ids)
        elif last:
            left[name] = failure
    if left:
        yield from noting_left(log, settings.epoch, left)
    return {name.dataset_urn: failure for name, failure in failures.items()}
