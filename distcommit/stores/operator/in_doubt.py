"""What a quarantined sequence has prepared at targets, where a person accepts it as it is: nobody will commit it, and
it ends there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.records.log_records import SealedSequence
from distcommit.protocol.paths.staging import attempt_folder, attempt_of
from distcommit.steps.registry import load_steps
from distcommit.steps.sink import SinkCommitStep
from distcommit.stores.folders.attempt_notes import (
    NotedAttempt,
    make_notes_durable,
    note_attempt,
    noted_attempts,
    remove_notes,
)
from distcommit.stores.folders.staging import list_attempts, prepare_bucket
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)
_NO_UNIT = "accepted"
"""In place of a work unit, where nothing is staged of its attempt any more."""


class InDoubt:
    """What of a sequence waits at targets to be committed by its name, noted as attempts that may have lost. Of a
    sequence that is open notes mean nothing, and go before it is executed; of one that has ended the next run of a job
    has the targets roll them back.

    Args:
        store: where the sequence is.
        sequence: it.
        committers: of its sinks, by their names. Of a sink that is not among them what is prepared stays.

    Raises:
        OSError: if the attempts can't be noted.
    """

    def __init__(self, store: JobStore, sequence: SealedSequence, committers: Mapping[str, OpensCommitter]) -> None:
        self._store = store
        self._steps = [*_in_doubt(store, sequence, committers)]
        self._noted = _noted(store, store.bucket_of(sequence.dataset_urn), self._steps) if self._steps else []

    def roll_back(self) -> Sequence[SinkCommitStep]:
        """Has targets roll back what is prepared, once the sequence has ended. Returns those of which one can't now:
        their notes stay."""
        left = [step for step in self._steps if not _ended(step)]
        if not left:
            remove_notes(self._store.fs, self._store.roots.staging, self._noted)
        return left


def _ended(step: SinkCommitStep) -> bool:
    try:
        step.undo()
    except (DistcommitError, OSError) as error:
        logger.warning("what is prepared is not rolled back yet: %r: %s", step, error)
        return False
    return True


def _in_doubt(
    store: JobStore, sequence: SealedSequence, committers: Mapping[str, OpensCommitter]
) -> Iterator[SinkCommitStep]:
    """Its steps whose sinks leave what can be neither committed nor taken away for good but by name."""
    context = StepContext(store.fs, store.roots.staging, store.roots.output, committers, store.store_id)
    for batch in sequence.steps:
        if batch.type_name != SinkCommitStep.type_name:
            continue
        try:
            steps = [*load_steps([batch], context)]
        except DistcommitError as error:  # what can't be read is released by `accept`, too
            logger.warning("what may be prepared at a target for %s stays there: %s", sequence.dataset_urn, error)
            continue
        for step in steps:
            if isinstance(step, SinkCommitStep) and step.sink.leaves_in_doubt and step.prepared_by:
                yield step


def _noted(store: JobStore, bucket: int, steps: list[SinkCommitStep]) -> list[NotedAttempt]:
    """Notes all attempts of these steps, durably."""
    fs, root, epoch = store.fs, store.roots.staging, steps[0].request.epoch
    staged = {attempt_of(each): each for group in list_attempts(fs, root, epoch, bucket).values() for each in group}
    attempts = dict.fromkeys(attempt for step in steps for attempt in step.prepared_by)
    prepare_bucket(fs, root, epoch, bucket)
    for attempt in attempts:
        folder = staged.get(attempt) or attempt_folder(epoch, bucket, _NO_UNIT, attempt)
        note_attempt(fs, root, folder, [step.sink_name for step in steps if attempt in step.prepared_by])
    make_notes_durable(fs, root, epoch, bucket)
    return [each for each in noted_attempts(fs, root, epoch, bucket) if each.attempt in attempts]
