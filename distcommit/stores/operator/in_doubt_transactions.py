"""Prepared transactions of an accepted sequence, which no run will commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.protocol.paths.staging import attempt_folder, attempt_of
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.step_registry import load_steps
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
"""Work unit of an attempt without staged files."""


class InDoubt:
    """The prepared transactions of a sequence. Their attempts get notes, like attempts that may have to be aborted.

    While the sequence is open the notes have no effect, and they are deleted before the sequence is executed. Once
    the sequence has ended, the next run of the job rolls the transactions back.

    Args:
        store: store of the sequence.
        committers: committers of the sequence's sinks, by sink name. Transactions of other sinks stay prepared.

    Raises:
        OSError: if a note cannot be written.
    """

    def __init__(self, store: JobStore, sequence: SealedSequence, committers: Mapping[str, OpensCommitter]) -> None:
        self._store = store
        self._steps = [*_in_doubt_steps(store, sequence, committers)]
        bucket = store.bucket_of(sequence.dataset_urn)
        self._notes = _note_attempts(store, bucket, self._steps) if self._steps else []

    def roll_back(self) -> Sequence[SinkCommitStep]:
        """Roll back once the sequence has ended; return the steps for which that failed. If any failed, the notes
        stay."""
        remaining = [step for step in self._steps if not _roll_back(step)]
        if not remaining:
            remove_notes(self._store.fs, self._store.roots.staging, self._notes)
        return remaining


def _roll_back(step: SinkCommitStep) -> bool:
    try:
        step.undo()
    except (DistcommitError, OSError) as error:
        logger.warning("a prepared transaction is not rolled back yet: %r: %s", step, error)
        return False
    return True


def _in_doubt_steps(
    store: JobStore, sequence: SealedSequence, committers: Mapping[str, OpensCommitter]
) -> Iterator[SinkCommitStep]:
    context = StepContext(store.fs, store.roots.staging, store.roots.output, committers, store.store_id)
    for batch in sequence.steps:
        if batch.type_name != SinkCommitStep.type_name:
            continue
        try:
            steps = [*load_steps([batch], context)]
        except DistcommitError as error:  # `accept` must also release a sequence that cannot be read
            logger.warning("transactions prepared for %s may stay at a target: %s", sequence.dataset_urn, error)
            continue
        for step in steps:
            if isinstance(step, SinkCommitStep) and step.sink.leaves_in_doubt and step.prepared_by:
                yield step


def _note_attempts(store: JobStore, bucket: int, steps: list[SinkCommitStep]) -> list[NotedAttempt]:
    fs, root, epoch = store.fs, store.roots.staging, steps[0].request.epoch
    staged = {
        attempt_of(folder): folder for group in list_attempts(fs, root, epoch, bucket).values() for folder in group
    }
    attempts = dict.fromkeys(attempt for step in steps for attempt in step.prepared_by)
    prepare_bucket(fs, root, epoch, bucket)
    for attempt in attempts:
        folder = staged.get(attempt) or attempt_folder(epoch, bucket, _NO_UNIT, attempt)
        note_attempt(fs, root, folder, [step.sink_name for step in steps if attempt in step.prepared_by])
    make_notes_durable(fs, root, epoch, bucket)
    return [note for note in noted_attempts(fs, root, epoch, bucket) if note.attempt in attempts]
