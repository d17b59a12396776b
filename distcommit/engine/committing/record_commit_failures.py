"""Classification of failed commits (lost, outage, retryable), and their record in the log.

`protocol.next_log_record.fail` decides when a dataset is quarantined.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from distcommit.core.errors import DistcommitError, FencedError, add_ids, printable
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.sealed_sequences import PostponedSequence, SequenceName
from distcommit.core.support.io_batching import BatchedWork
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.node_failures import hand_back
from distcommit.engine.run_events import DatasetQuarantined
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol import next_log_record
from distcommit.steps.failure_classification import Failure, classify_failure, classify_failures
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import require_fence

logger = logging.getLogger(__name__)


def record_pending_reasons(log: CommitLog, epoch: int, unfinished: Mapping[SequenceName, Failure]) -> BatchedWork[None]:
    """Record why sequences stay pending although no attempt counts as failed, so that `status` can report it.

    A reason that is recorded already is not repeated. If the log cannot be written, the failure is only logged.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    try:
        for outage in {failure.outage for failure in unfinished.values()}:
            entries = [
                PostponedSequence(name.dataset_urn, name.epoch, failure.reason)
                for name, failure in unfinished.items()
                if failure.outage is outage
            ]
            fold = yield from log.settle(
                partial(next_log_record.postpone, epoch=epoch, postponed=entries, outage=outage)
            )
            require_fence(fold, epoch, log.folder)
    except FencedError:
        raise
    except (DistcommitError, OSError) as error:
        logger.warning("reasons of pending sequences could not be recorded: %s", error, extra={"log": log.folder})


def record_failed_attempt(
    log: CommitLog, epoch: int, name: SequenceName, failure: Failure, max_attempts: int
) -> BatchedWork[DatasetStatus]:
    """Record this run's failed attempt at a sequence, once. The last attempt, or a loss, quarantines its dataset.

    Returns:
        the dataset's new status.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    fold = yield from log.settle(
        partial(
            next_log_record.fail,
            epoch=epoch,
            name=name,
            reason=failure.reason,
            for_good=failure.lost,
            max_attempts=max_attempts,
        )
    )
    require_fence(fold, epoch, log.folder)
    return fold.state_of(name.dataset_urn).status


def record_failures(
    log: CommitLog,
    settings: RunSettings,
    context: StepContext,
    bucket: int,
    failed: Mapping[SequenceName, DistcommitError],
    loaded: Mapping[SequenceName, Sequence[CommitStep]],
    tally: Tally,
    *,
    replaying: bool,
    last: bool,
    progressed: Collection[SequenceName] = (),
) -> BatchedWork[dict[str, Failure]]:
    """Report failed sequences and record them in the bucket's log.

    A lost sequence is quarantined at once. Any other failure counts as a failed attempt only in replay, and only if no
    outage, program version or sink setting caused it and the commit has made no progress.

    Args:
        failed: error of each sequence.
        loaded: steps of the sequences whose steps could be read.
        tally: receives counts, reasons and events.
        replaying: whether an older run sealed the sequences.
        last: whether this run does not try the sequences again. If so, the reason why they stay pending is recorded.
        progressed: sequences with a recorded change of their steps.

    Returns:
        the failures, by dataset.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    for name, error in failed.items():
        hand_back(settings, error)
        add_ids(error, dataset=name.dataset_urn, epoch=name.epoch, bucket=bucket)
    fold = log.refresh()  # sequences that another committer has closed meanwhile did not fail
    still_open = {name: error for name, error in failed.items() if fold.sequence(name) is not None}
    failures = (
        (yield from classify_failures(still_open, loaded, context, bucket))
        if last
        else {name: classify_failure(error) for name, error in still_open.items()}
    )
    unfinished: dict[SequenceName, Failure] = {}
    for name, failure in failures.items():
        tally.add_reason(name.dataset_urn, failure.kind, failure.reason)
        tally.add(RunCounts(executions_failed=1))
        is_excused = failure.outage or failure.needs_other_version or name in progressed
        if failure.lost or (replaying and not is_excused):
            status = yield from record_failed_attempt(log, settings.epoch, name, failure, settings.max_attempts)
            if status is DatasetStatus.QUARANTINED:
                tally.add(RunCounts(datasets_quarantined=1))
                tally.observe(DatasetQuarantined(name.dataset_urn, name.epoch, failure.reason, settings.clock.now_ms()))
                ids = {"dataset": printable(name.dataset_urn), "epoch": name.epoch}
                logger.error("dataset quarantined: %s", failure.reason, extra=ids)
        elif last:
            unfinished[name] = failure
    if unfinished:
        yield from record_pending_reasons(log, settings.epoch, unfinished)
    return {name.dataset_urn: failure for name, failure in failures.items()}
