"""Records of steps that a failed execution has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from distcommit.core.errors import DistcommitError, reason_text
from distcommit.core.interfaces.commit_step import CommitStep
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName
from distcommit.core.support.io_batching import BatchedWork
from distcommit.protocol import next_log_record
from distcommit.steps.changed_steps import changed_batches
from distcommit.steps.failure_classification import is_lost
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import require_fence


def record_changed_steps(
    log: CommitLog,
    epoch: int,
    executed: Mapping[SequenceName, SealedSequence],
    loaded: Mapping[SequenceName, Sequence[CommitStep]],
    failed: dict[SequenceName, DistcommitError],
) -> BatchedWork[frozenset[SequenceName]]:
    """Record the steps of failed sequences whose rows their execution has changed, so that the retry uses these rows.

    Args:
        executed: the sequences as they were executed.
        loaded: the steps of the sequences after the execution.
        failed: error of each failed sequence. If a change cannot be recorded, that error replaces the error of the
            sequence, unless a step is lost.

    Returns:
        the sequences with a recorded change. Their commits have made progress and do not count as failed attempts.

    Raises:
        FencedError: if a newer run has fenced the log.
        DistcommitError, OSError: if the log cannot be written. The retry then uses the recorded rows.
    """
    changed: list[PostponedSequence] = []
    for name, error in failed.items():
        opened = log.latest().state_of(name.dataset_urn).open
        try:
            steps = changed_batches(executed[name], opened.changes if opened else 0, loaded.get(name, ()))
        except DistcommitError as rejected:
            if not is_lost(error):
                failed[name] = rejected
        else:
            if steps:
                reason = reason_text(str(error))
                changed.append(PostponedSequence(name.dataset_urn, name.epoch, reason, steps=steps))
    if not changed:
        return frozenset()
    fold = yield from log.settle(partial(next_log_record.change_steps, epoch=epoch, executed=executed, changed=changed))
    require_fence(fold, epoch, log.folder)
    names = [SequenceName(entry.dataset_urn, entry.epoch) for entry in changed]
    return frozenset(
        name
        for name in names
        if (recorded := fold.sequence(name)) is not None and recorded.steps != executed[name].steps
    )
