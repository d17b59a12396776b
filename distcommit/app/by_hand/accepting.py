"""Accepting a quarantined dataset as it is: what is prepared for it at a target, and nobody will commit, ends there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from distcommit.model.committer import OpensCommitter
from distcommit.model.errors import DistcommitError
from distcommit.model.log_records import SealedSequence
from distcommit.model.steps import StepContext
from distcommit.protocol.paths.staging import attempt_folder, attempt_of
from distcommit.steps.registry import load_steps
from distcommit.steps.sink import SinkCommitStep
from distcommit.stores import by_hand
from distcommit.stores.attempt_notes import (
    NotedAttempt,
    make_notes_durable,
    note_attempt,
    noted_attempts,
    remove_notes,
)
from distcommit.stores.job_store import JobStore
from distcommit.stores.staging import list_attempts, prepare_bucket

logger = logging.getLogger(__name__)
_NO_UNIT = "accepted"
"""In place of a work unit, where nothing is staged of its attempt any more."""


def accept(store: JobStore, urn: str, who: str, committers: Mapping[str, OpensCommitter]) -> None:
    """As `stores.by_hand.accept`. What targets keep prepared for the sequence is rolled back then: a target that can't
    be asked is asked by the next run. For that its attempts are noted, as those that may have lost, before the record:
    of a sequence that is open notes mean nothing, and go before it is executed.

    Raises:
        ConflictError: as there; nothing was changed.
        OSError: if the attempts can't be noted; nothing was changed.
    """
    bucket = store.bucket_of(urn)
    sequence = store.bucket_log(bucket).refresh().state_of(urn).sequence
    steps = [*_in_doubt(store, sequence, committers)] if sequence is not None else []
    noted = _noted(store, bucket, steps) if steps else []
    by_hand.accept(store, urn, who)
    left = [step for step in steps if not _ended(step)]
    if not left:
        remove_notes(store.fs, store.roots.staging, noted)


def _ended(step: SinkCommitStep) -> bool:
    try:
        step.undo()
    except (DistcommitError, OSError) as error:
        logger.warning("what is prepared is rolled back by the next run: %r: %s", step, error)
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
