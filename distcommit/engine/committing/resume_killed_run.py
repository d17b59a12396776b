"""Sealing of work units that a killed run had finished (`task.resume_across_runs`).

Recovery seals them up to the first gap, by the killed run's rules and with its epoch, so that file names, footers and
ledgers agree. Then the sequence is replayed, and planning continues at its end.

A late recovery task may still seal the sequence until a newer run's fence, so only the run after this one
sweeps the staged files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from distcommit.core.errors import DistcommitError
from distcommit.core.records.maintenance_units import is_maintenance
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.support.io_batching import BatchedWork, run_alone
from distcommit.core.work_units import DatasetPlan, TaskState
from distcommit.engine.committing.build_commit_sequence import build_sequence
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.run_settings import RunSettings, step_context
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_validity import may_seal
from distcommit.protocol.seal_decision import CommitPolicy, Ready, readiness
from distcommit.stores.folders.staging import StagedFiles
from distcommit.stores.history.run_records import RunBeginning, read_beginning
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.state.run_plans import PlanReader, read_manifest
from distcommit.stores.state.task_states import PastStates

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KilledRun:
    """The previous run, which was killed after its plan was valid.

    Attributes:
        settings: this run's settings with the run id and epoch of the killed run.
        plans: the plans of the killed run.
    """

    settings: RunSettings
    plans: PlanReader


def resumed_epoch(settings: RunSettings, job_fold: Fold) -> int:
    """Return the epoch of a killed previous run to resume; else 0.

    Only the job log decides, so that all recovery tasks agree. After CUT 1 it is this run's epoch.
    """
    is_dead = job_fold.began_epoch > job_fold.ended_epoch
    return job_fold.began_epoch if settings.resume_across_runs and is_dead else 0


def find_killed_run(settings: RunSettings, job_fold: Fold) -> KilledRun | None:
    """Return the killed run to resume, or None.

    A run is not resumed with at-least-once, for all-or-none jobs, if job file or software differ, or if its plan or
    the records of both starts cannot be read.
    """
    epoch = resumed_epoch(settings, job_fold)
    if not 0 < epoch < settings.epoch or settings.at_least_once or settings.job_level:
        return None
    fs, root = settings.store.fs, settings.store.roots.store
    try:
        before, now = read_beginning(fs, root, epoch), read_beginning(fs, root, settings.epoch)
        if before is None or now is None or _differ(before, now):
            logger.warning("the run of epoch %d is not resumed: its job file or software is not this run's", epoch)
            return None
        plans = PlanReader(fs, root, read_manifest(fs, root, before.run_id))
    except FileNotFoundError:  # it was killed before its plan was valid
        return None
    except (DistcommitError, OSError) as error:
        logger.warning("the run of epoch %d is not resumed: %s", epoch, error)
        return None
    return KilledRun(replace(settings, run_id=before.run_id, epoch=epoch), plans)


def _differ(before: RunBeginning, now: RunBeginning) -> bool:
    """Return whether the runs had other settings or software. The recorded configuration does not suffice, because it
    hides secrets and values of environment variables."""
    kept, own = before.facts, now.facts
    return (kept.config, kept.settings_digest, kept.versions) != (own.config, own.settings_digest, own.versions)


def seal_finished_work(
    settings: RunSettings, killed: KilledRun, bucket: int, log: CommitLog, past: PastStates, tally: Tally
) -> BatchedWork[Fold]:
    """Seal the finished work units of a killed run in a bucket that this run has fenced. Return the log's state.

    If plans or task states cannot be read, nothing is sealed.

    Args:
        settings: settings of this run.
        past: task states of past runs.
        tally: receives a note for each dataset.
    """
    fold = log.refresh()
    try:
        sequences = list(_sequences(killed, bucket, fold, past))
    except (DistcommitError, OSError) as error:
        logger.warning("finished work units are read again: %s", error, extra={"bucket": bucket})
        return fold
    if not sequences:
        return fold
    fold = yield from log.settle(partial(next_log_record.seal, epoch=settings.epoch, sequences=sequences))
    yield from log.make_durable()
    _record_head(settings, bucket, log)
    for sequence in sequences:
        if fold.state_of(sequence.dataset_urn).sequence == sequence:
            detail = f"{sequence.records} records that the killed run of epoch {sequence.epoch} had finished"
            tally.note(sequence.dataset_urn, "resumed", detail)
    return fold


def _record_head(settings: RunSettings, bucket: int, log: CommitLog) -> None:
    """Record a bucket's head in the job log before any step is executed.

    Otherwise, if this run died, nothing would show a later loss of sequences with the killed run's epoch.
    """
    user, generation = f"the run of epoch {settings.epoch}", settings.store.generation
    head = log.head(bucket)
    run_alone(
        settings.store.job_log(settings.epoch).settle(
            partial(next_log_record.heads, generation=generation, reported=(head,), user=user)
        )
    )


def _sequences(killed: KilledRun, bucket: int, fold: Fold, past: PastStates) -> Iterator[SealedSequence]:
    settings = killed.settings
    plans = [plan for plan in killed.plans.of(bucket) if _is_resumed(settings, plan, bucket, fold)]
    if not plans:
        return
    states: dict[str, list[TaskState]] = {plan.dataset_urn: [] for plan in plans}
    for state in past.of(settings.run_id, bucket):
        if state.dataset_urn in states:
            states[state.dataset_urn].append(state)
    staged = StagedFiles(settings.store.fs, settings.store.roots.staging)
    staged.list_folders_of(state for listed in states.values() for state in listed)
    for plan in plans:
        sequence = _sequence(settings, plan, states, fold, staged)
        if sequence is not None:
            yield sequence


def _is_resumed(settings: RunSettings, plan: DatasetPlan, bucket: int, fold: Fold) -> bool:
    urn = plan.dataset_urn
    return (
        settings.policy_of(urn) is not CommitPolicy.FULL
        and settings.replays_only in ("", urn)
        and settings.store.planning_bucket(urn) == bucket
        and not any(map(is_maintenance, plan.work_units))
        and may_seal(fold, settings.epoch, urn, plan.planned_low)
    )


def _sequence(
    settings: RunSettings,
    plan: DatasetPlan,
    states: Mapping[str, Sequence[TaskState]],
    fold: Fold,
    staged: StagedFiles,
) -> SealedSequence | None:
    urn = plan.dataset_urn
    policy = settings.policy_of(urn)
    answer = readiness(plan, states[urn], policy=policy, ingest_ended=True, staged=staged.has_all_of)
    if not isinstance(answer, Ready):
        return None
    context, state = step_context(settings), fold.state_of(urn)
    return build_sequence(settings, context, state, plan, answer, staged, attempts=states[urn])[0]
