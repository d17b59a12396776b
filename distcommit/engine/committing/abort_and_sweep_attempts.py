"""Abort attempts, and delete their staged files, once no commit sequence can contain them.

If a sink leaves data at the target before the commit, a task durably writes a note beside the attempt's folder before
it opens a writer. The committer deletes the notes of a sequence's attempts before it executes the first step. A
remaining note of this run belongs to an aborted attempt once its dataset is DONE. A remaining note of an older run
does so once this run has fenced the bucket and no pending, quarantined or revoking sequence contains the attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, require_success
from distcommit.core.interfaces.committer import AbortedAttempt
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.work_units import TaskState
from distcommit.engine.run_settings import RunSettings, step_context
from distcommit.protocol.log_state import Fold
from distcommit.steps.sink_step import open_committer
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.attempt_notes import (
    NotedAttempt,
    make_notes_durable,
    noted_attempts,
    remove_notes,
    remove_unfinished_notes,
)
from distcommit.stores.folders.staging import remove_attempts, remove_empty, sweep_epoch
from distcommit.stores.state.task_states import PastStates

logger = logging.getLogger(__name__)


def remove_winner_notes(context: StepContext, bucket: int, loaded: Mapping[SequenceName, Sequence[CommitStep]]) -> None:
    """Delete the notes of these sequences' attempts, durably, before any step is executed.

    Raises:
        OSError: if notes cannot be deleted. No step may be executed then.
    """
    winners: dict[int, set[str]] = {}
    for name, steps in loaded.items():
        kinds: set[type[CommitStep]] = {*map(type, steps)}
        prepared = any(kind.prepared_by is not CommitStep.prepared_by for kind in kinds)
        if prepared and (attempts := {attempt for step in steps for attempt in step.prepared_by}):
            winners.setdefault(name.epoch, set()).update(attempts)
    for epoch, attempts in winners.items():
        noted = noted_attempts(context.fs, context.staging_root, epoch, bucket)
        remove_notes(context.fs, context.staging_root, [note for note in noted if note.attempt in attempts])
        with suppress(FileNotFoundError):  # nothing is staged, so there are no notes
            # Even if none were found: a process that removed them may have crashed before its sync.
            make_notes_durable(context.fs, context.staging_root, epoch, bucket)


def abort_ended(settings: RunSettings, bucket: int, work_units: Iterable[str]) -> list[str]:
    """Abort attempts at work units of DONE datasets that have ended without being committed.

    Returns:
        folders below the staging root that must stay, because data could not be deleted yet.
    """
    if not settings.flow.preparing_committers:
        return []
    fs, roots, units = settings.store.fs, settings.store.roots, set(work_units)
    noted = [n for n in noted_attempts(fs, roots.staging, settings.epoch, bucket) if n.work_unit_id in units]
    if not noted:
        return []
    past_states = PastStates(fs, roots.store).of(settings.run_id, bucket)
    states = {state.attempt: state for state in past_states}
    ended = [note for note in noted if note.attempt in states]
    kept_folders = [note.folder for note in noted if note.attempt not in states]
    if ended:
        if not _abort(settings, ended, states):
            return [note.folder for note in noted]
        remove_attempts(fs, roots.staging, [note.folder for note in ended])
        remove_notes(fs, roots.staging, ended)
    return kept_folders


def sweep_aborted(settings: RunSettings, epoch: int, bucket: int, past_states: PastStates) -> int:
    """Abort an older run's attempts in one bucket, and delete its staged files.

    The older run must have no pending, quarantined or revoking sequence in the bucket. If a target cannot be reached,
    nothing is deleted, and the next run repeats the sweep.

    Args:
        settings: settings of this run, which has fenced the bucket.
        epoch: epoch of the older run.
        past_states: task states of past runs, shared by all buckets of the caller.

    Returns:
        the number of deleted files.
    """
    fs, roots = settings.store.fs, settings.store.roots
    noted = noted_attempts(fs, roots.staging, epoch, bucket)
    if noted:
        states = {state.attempt: state for state in past_states.of_epoch(epoch, bucket)}
        if not _abort(settings, noted, states):
            return 0
    files = sweep_epoch(fs, roots.staging, epoch, bucket)
    remove_notes(fs, roots.staging, noted)
    remove_unfinished_notes(fs, roots.staging, epoch, bucket)
    remove_empty(fs, roots.staging, epoch, bucket)
    return files


def abort_unsealed(settings: RunSettings, epoch: int, bucket: int, past_states: PastStates, fold: Fold) -> None:
    """Abort an older run's attempts in one bucket that no pending, quarantined or revoking sequence contains.

    Staged files stay until the bucket is swept. The notes of attempts that have not ended also stay, because a process
    of the older run may still write.

    Args:
        settings, epoch, past_states: as for `sweep_aborted`.
        fold: state of the bucket's log.
    """
    fs, staging = settings.store.fs, settings.store.roots.staging
    noted = noted_attempts(fs, staging, epoch, bucket)
    if not noted:
        return
    sequences = [state.sequence for state in fold.datasets.values() if state.sequence and state.sequence.epoch == epoch]
    context = step_context(settings)
    try:
        steps = [step for sequence in sequences for step in load_steps(sequence.steps, context)]
    except Exception as error:  # noqa: BLE001 - also of custom commit steps; one dataset must not stop its bucket
        logger.warning("attempts beside an open sequence are aborted later: %s", error)
        return
    sealed = {attempt for step in steps for attempt in step.prepared_by}
    unsealed = [note for note in noted if note.attempt not in sealed]
    states = {state.attempt: state for state in past_states.of_epoch(epoch, bucket)}
    if _abort(settings, unsealed, states):
        remove_notes(fs, staging, [note for note in unsealed if note.attempt in states])


def _abort(settings: RunSettings, aborted: Sequence[NotedAttempt], states: Mapping[str, TaskState]) -> bool:
    all_aborted, context = True, step_context(settings).for_committers
    for name in sorted({name for note in aborted for name in note.sinks}):
        attempts = [_lost_attempt(note, states.get(note.attempt), name) for note in aborted if name in note.sinks]
        sink = settings.flow.preparing_committers.get(name)
        if sink is None:
            logger.warning("%d attempts left data with sink %r, which the job no longer has", len(attempts), name)
            all_aborted = False
            continue
        try:
            with open_committer(sink, context) as committer:
                require_success(f"sink {name!r}", "abort", committer.abort(attempts))
        except Exception as error:
            trace = None if isinstance(error, DistcommitError | OSError) else error
            logger.warning("data of aborted attempts at %r is deleted later: %s", name, error, exc_info=trace)
            all_aborted = False
    return all_aborted


def _lost_attempt(noted: NotedAttempt, state: TaskState | None, sink: str) -> AbortedAttempt:
    results = [result for result in state.branches if result.sink == sink] if state is not None else []
    return AbortedAttempt(
        epoch=noted.epoch,
        work_unit_id=noted.work_unit_id,
        attempt=noted.attempt,
        folder=noted.folder,
        infos=tuple(info for result in results for info in result.infos),
    )
