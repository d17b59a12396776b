"""What attempts that lost have left at a target: the sink's committer takes it away, once nobody can choose them.

Of sinks that leave something there before a commit, each attempt is noted beside its staging folder before its writers
are opened, durably. The note goes as a sequence that names the attempt is about to be executed, before any of it is. So
what is noted and can't be sealed any more has lost: of this run, attempts that have ended at what was read as DONE; of
older runs, all of a bucket that has nothing pending, quarantined or revoking of that epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.committer import LostAttempt
from distcommit.core.interfaces.steps import CommitStep, StepContext, require_success
from distcommit.core.records.log_records import SequenceName
from distcommit.core.work import TaskState
from distcommit.engine.committing.sealing import step_context
from distcommit.engine.settings import RunSettings
from distcommit.steps.sink import open_committer
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


def forget_winners(context: StepContext, bucket: int, loaded: Mapping[SequenceName, Sequence[CommitStep]]) -> None:
    """Takes the notes of attempts away that these sequences name, which are about to be executed, durably.

    Raises:
        OSError: if that can't be done; then nothing may be executed.
    """
    won: dict[int, set[str]] = {}
    for name, steps in loaded.items():
        kinds: set[type[CommitStep]] = {*map(type, steps)}
        prepared = any(kind.prepared_by is not CommitStep.prepared_by for kind in kinds)
        if prepared and (attempts := {attempt for step in steps for attempt in step.prepared_by}):
            won.setdefault(name.epoch, set()).update(attempts)
    for epoch, attempts in won.items():
        noted = noted_attempts(context.fs, context.staging_root, epoch, bucket)
        remove_notes(context.fs, context.staging_root, [each for each in noted if each.attempt in attempts])
        with suppress(FileNotFoundError):  # nothing is staged: neither are there notes
            # Also if there were none: they may be gone by a crashed process, and come back.
            make_notes_durable(context.fs, context.staging_root, epoch, bucket)


def discard_ended(settings: RunSettings, bucket: int, work_units: Iterable[str]) -> list[str]:
    """Takes away what this run's attempts at these work units have left at targets that have lost and ended. Of their
    datasets the sequences were read as DONE.

    Returns:
        folders of attempts (relative to the staging root) that are to stay, as they are not settled.
    """
    if not settings.flow.discarding:
        return []
    fs, roots, units = settings.store.fs, settings.store.roots, set(work_units)
    noted = [n for n in noted_attempts(fs, roots.staging, settings.epoch, bucket) if n.work_unit_id in units]
    if not noted:
        return []
    past = PastStates(fs, roots.store).of(settings.run_id, bucket)
    states = {state.attempt: state for state in past}
    ended = [each for each in noted if each.attempt in states]
    stay = [each.folder for each in noted if each.attempt not in states]
    if ended:
        if not _discarded(settings, ended, states):
            return [each.folder for each in noted]
        remove_attempts(fs, roots.staging, [each.folder for each in ended])
        remove_notes(fs, roots.staging, ended)
    return stay


def sweep_lost(settings: RunSettings, epoch: int, bucket: int, past: PastStates) -> int:
    """Sweeps what a bucket's attempts of an older run have left, of which nothing is pending, quarantined or revoking:
    at targets first, then in staging. If a target can't be reached it all stays, for the next run. Returns how many
    files went. `past`: one for all the buckets that somebody sweeps."""
    fs, roots = settings.store.fs, settings.store.roots
    noted = noted_attempts(fs, roots.staging, epoch, bucket)
    if noted:
        states = {state.attempt: state for state in past.of_epoch(epoch, bucket)}
        if not _discarded(settings, noted, states):
            return 0
    files = sweep_epoch(fs, roots.staging, epoch, bucket)
    remove_notes(fs, roots.staging, noted)
    remove_unfinished_notes(fs, roots.staging, epoch, bucket)
    remove_empty(fs, roots.staging, epoch, bucket)
    return files


def _discarded(settings: RunSettings, lost: Sequence[NotedAttempt], states: Mapping[str, TaskState]) -> bool:
    """Whether all sinks have taken away what these attempts have left at their targets."""
    whole, context = True, step_context(settings).for_committers
    for name in sorted({name for each in lost for name in each.sinks}):
        mine = [_lost(each, states.get(each.attempt), name) for each in lost if name in each.sinks]
        sink = settings.flow.discarding.get(name)
        if sink is None:
            logger.warning("%d attempts have left something with the sink %r, which the job has not", len(mine), name)
            whole = False
            continue
        try:
            with open_committer(sink, context) as committer:
                require_success(f"sink {name!r}", "discard", committer.discard(mine))
        except Exception as error:
            told = None if isinstance(error, DistcommitError | OSError) else error
            logger.warning("what attempts have left at %r is taken away later: %s", name, error, exc_info=told)
            whole = False
    return whole


def _lost(noted: NotedAttempt, state: TaskState | None, sink: str) -> LostAttempt:
    results = [result for result in state.branches if result.sink == sink] if state is not None else []
    return LostAttempt(
        epoch=noted.epoch,
        work_unit_id=noted.work_unit_id,
        attempt=noted.attempt,
        folder=noted.folder,
        infos=tuple(info for result in results for info in result.infos),
    )
