"""Detects the problems of a job, each with the command that resolves it or shows more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from distcommit.app.inspection.dry_runs.release_plan import remedy_of
from distcommit.app.inspection.job_status import (
    BUCKET,
    JOB_LOG,
    WAITING,
    DatasetStatusRow,
    NextRun,
    StatusResult,
    waiting,
)
from distcommit.app.inspection.problems import dataset_problem_kinds as of_dataset
from distcommit.app.inspection.problems import job_problem_kinds as of_job
from distcommit.app.inspection.problems.environment_checks import NAMED, EnvironmentFindings
from distcommit.app.inspection.problems.problem_kind import Problem, ProblemKind
from distcommit.app.inspection.problems.recommended_commands import Command
from distcommit.app.inspection.recorded_runs import DIED, RunRow, RunsResult, RunStatus
from distcommit.app.inspection.rejected_records import unreadable_files
from distcommit.core.error_catalogue import ERRORS
from distcommit.core.error_handling.error_text_classification import is_record, is_worker_death
from distcommit.core.errors import NEW_FIELDS, RECORD_REJECTED
from distcommit.core.records.freshness_targets import BEHIND
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import INPUT_PROBLEM
from distcommit.stores.history.run_records import NOT_PLANNED
from distcommit.stores.logs.fencing import UNFINISHED_REBUILD
from distcommit.stores.state.damaged_files import SETTINGS_RECORD

_CLOCK_MS = 60_000
"""Smaller differences between clocks, in milliseconds, are not reported."""
_NOTHING = EnvironmentFindings()
_NOT_RETRIED = frozenset({"STORED_POSITION_FOREIGN"})
"""Ids of errors that another run cannot solve. The catalogue has the command that does."""


def find_problems(
    result: StatusResult, runs: RunsResult, command: Command, environment: EnvironmentFindings = _NOTHING
) -> list[Problem]:
    """Return the job's problems, the most blocking first. At most twenty of each kind are reported one by one."""
    alive = any(row.status in (RunStatus.RUNNING, RunStatus.PENDING) and not row.is_renewal_late for row in runs.runs)
    causes = [
        *(of_job.FOLDER_NOT_WRITABLE.report(command, fault=fault) for fault in environment.unwritable_folders),
        *_stuck_locks(runs, command),
        *_stalled(result, runs, command, environment),
        *_of_stores(result, command, environment),
        *_waiting(result, command, environment),
        *_blocked(result, command),
        *_held_back(result, command),
        *_not_planned(result, command),
        *([] if environment.staged_in_other_folder else _pending(result, command, alive=alive)),
        *_not_read(result, command, environment),
        *_losses(result, command),
        *_wrong_clocks(runs, command, environment.now_ms),
    ]
    plain = command("run")
    needed = next((cause.command for cause in causes if cause.command != plain), plain)
    return [
        *causes,
        *_of_runs(result, runs, command, needed, alive=alive),
        *_behind_target(result, runs, command, environment, alive=alive),
        *_input_problems(result, command),
        *_mostly_rejected(command, environment),
        *([of_job.JOB_PAUSED.report(command, who=result.paused_by)] if result.paused_by else []),
    ]


def _stuck_locks(runs: RunsResult, command: Command) -> Iterator[Problem]:
    for row in runs.runs:
        if row.is_renewal_late:
            holder = f"the run of epoch {row.epoch}" if row.epoch else "a run without an epoch"
            yield of_job.LOCK_STUCK.report(command, holder=holder, reason=row.reason)


def _stalled(
    result: StatusResult, runs: RunsResult, command: Command, environment: EnvironmentFindings
) -> Iterator[Problem]:
    for row in runs.runs:
        if not (seconds := environment.stalled_s.get(row.run_id, 0)):
            continue
        is_run = bool(row.began_ms)  # only runs leave a record of their beginning
        if not is_run and result.moving_to:
            kind = of_job.REBUCKET_STALLED
        elif not row.epoch:
            kind = of_job.RUN_NOT_STARTED
        elif not is_run and environment.newer == UNFINISHED_REBUILD:
            kind = of_job.REBUILD_STALLED
        else:
            kind = of_job.RUN_STALLED
        yield kind.report(
            command, epoch=row.epoch, seconds=seconds, on=_on(row), reason=row.reason, buckets=result.moving_to
        )


def _of_stores(result: StatusResult, command: Command, environment: EnvironmentFindings) -> Iterator[Problem]:
    if environment.newer:
        repair = ("rebuild",) if environment.newer == UNFINISHED_REBUILD else ()
        yield of_job.STORE_OUTDATED.report(command, evidence=environment.newer, repair=repair)
    if environment.older:
        yield of_job.OUTPUT_OUTDATED.report(command, evidence=environment.older)
    if environment.staged_in_other_folder:
        yield of_job.STAGING_REPLACED.report(command)
    if buckets := result.moving_to:
        yield of_job.REBUCKET_UNFINISHED.report(command, buckets=buckets, repair=("rebucket", str(buckets)))
    for name, error in list(result.unreadable.items())[:NAMED]:
        repair = ("rebuild",) if name in result.damaged and name != SETTINGS_RECORD else ()
        yield of_job.FILE_UNREADABLE.report(
            command, name=name, reason=error, repair=repair, instead=_for_file(name, result)
        )


def _for_file(name: str, result: StatusResult) -> str:
    """Return the command that repairs an unreadable file, or that shows its content."""
    if name in result.damaged:
        return "store rebuild"
    if name.startswith(BUCKET):
        return f"store log --bucket={name.removeprefix(BUCKET)}"
    return "store log" if name.startswith(JOB_LOG) else "store verify"


_STOPPED = {"quarantined": "retry", "revoking": "abandon", "stopped": "retry"}
_KINDS = {
    "quarantined": of_dataset.DATASET_QUARANTINED,
    "revoking": of_dataset.ABANDON_UNFINISHED,
    "stopped": of_dataset.DATASET_STOPPED,
}


def _waiting(result: StatusResult, command: Command, environment: EnvironmentFindings) -> Iterator[Problem]:
    """Report datasets that an operator must release, as one problem for each status and reason."""
    groups = waiting(result)
    are_many_gone = sum(step.target_missing for step in environment.lost_steps.values()) > 1
    for rows in groups[:NAMED]:
        first, status = rows[0], rows[0].status
        kind, reason, step = _KINDS[status], first.reason, ""
        way: str = (remedy_of(first.reason) if status == "quarantined" else None) or _STOPPED[status]
        lost_step = environment.lost_steps.get(first.dataset) if status == "quarantined" else None
        if lost_step is not None and lost_step.target_missing:
            kind, way, reason, step = of_dataset.STAGED_FILE_MISSING, "abandon", "", lost_step.subject
        elif lost_step is not None:
            kind, reason = of_dataset.FOREIGN_FILE_AT_TARGET, lost_step.reason
        is_one_of_many = status != "revoking" and (len(rows) > 1 or (way == "abandon" and are_many_gone))
        yield kind.report(
            command,
            names=f"{first.dataset} is" if len(rows) == 1 else f"{_names(rows)} with the same reason are",
            reason=reason,
            step=step,
            dataset=first.dataset,
            way=way,
            instead="dataset release --all {way}" if is_one_of_many else "",
            datasets=len(rows),
            repair=("abandon", *(row.dataset for row in rows)) if status == "revoking" else (),
        )
    if omitted := sum(map(len, groups[NAMED:])):
        yield of_dataset.MORE_DATASETS_WAITING.report(command, count=omitted, datasets=omitted)


def _blocked(result: StatusResult, command: Command) -> Iterator[Problem]:
    if not result.is_job_level:
        return
    if blocking := [row for row in result.datasets if row.status in WAITING]:
        yield of_job.JOB_BLOCKED_BY_DATASETS.report(command, names=_are(blocking), datasets=len(blocking))
    if unreadable := [name for name in result.unreadable if name.startswith(BUCKET)]:
        and_others = f" and of {len(unreadable) - 1:,} more" if len(unreadable) > 1 else ""
        names, instead = f"{unreadable[0]}{and_others}", _for_file(unreadable[0], result)
        yield of_job.JOB_BLOCKED_BY_LOG.report(command, names=names, instead=instead)


def _held_back(result: StatusResult, command: Command) -> Iterator[Problem]:
    last = result.last_run
    if not result.is_job_level or last is None or last.outcome is not RunOutcome.HELD_BACK:
        return
    for reason in last.reasons.entries[:NAMED]:
        problem = of_job.JOB_HELD_BACK.report(
            command, reason=reason.text, datasets=1, subject=reason.subject, failure=reason.kind
        )
        yield _by_its_source(problem, reason, result, command)
    if more := max(0, len(last.reasons.entries) - NAMED) + last.reasons.omitted_count:
        yield of_job.JOB_HELD_BACK.report_more(command, more, epoch=last.epoch)


def _not_planned(result: StatusResult, command: Command) -> Iterator[Problem]:
    last = result.last_run
    if last is None or last.error or result.is_job_level:
        return
    reasons = [reason for reason in last.reasons.entries if reason.kind == NOT_PLANNED]
    for reason in reasons[:NAMED]:
        problem = of_dataset.PLAN_FAILED.report(command, reason=reason.text, datasets=1, dataset=reason.subject)
        yield _by_its_source(problem, reason, result, command)
    if more := len(reasons[NAMED:]):
        yield of_dataset.PLAN_FAILED.report_more(command, more, epoch=last.epoch)


def _by_its_source(problem: Problem, reason: Reason, result: StatusResult, command: Command) -> Problem:
    """Return the problem with the command that the source or the error catalogue recommends, unless an operator has
    changed the dataset since the run.
    """
    is_done = any(row.dataset == reason.subject and row.is_set_since_run for row in result.datasets)
    remedy = reason.remedy or _catalogued(reason)
    if not remedy or is_done:
        return problem
    name, *words = remedy
    has_options = any(word.startswith("--set=") for word in words)
    return msgspec.structs.replace(problem, command=command(name, *words, named=not has_options))


def _catalogued(reason: Reason) -> Sequence[str]:
    """Return the command of the catalogue for an error that a retry cannot solve, as words; empty for other errors."""
    error_id = reason.text.partition(":")[0]
    entry = ERRORS.get(error_id) if error_id in _NOT_RETRIED else None
    if entry is None or not entry.command:
        return ()
    name, _, words = entry.command.partition(" JOB.yaml")
    return (name, *(reason.subject if word == "DATASET" else word for word in words.split()))


def _pending(result: StatusResult, command: Command, *, alive: bool) -> Iterator[Problem]:
    """Report sealed commits that are not closed, unless a run is alive."""
    pending = [row for row in result.datasets if row.status == "pending"]
    if alive or not pending:
        return
    replayed = [row for row in pending if row.next_run is NextRun.REPLAYS]
    dropped = [row for row in pending if row.next_run in (NextRun.DROPS, NextRun.UNDECIDED)]
    unknown = [row for row in pending if row.next_run is NextRun.UNKNOWN]
    failing = next((row for row in pending if row.reason), None)
    if replayed:
        yield of_dataset.COMMIT_PENDING.report(
            command,
            names=_are(replayed),
            of=f"; the last failure of {failing.dataset}: " if failing else "",
            reason=failing.reason if failing else "",
            datasets=len(replayed),
            repair=("recover",),
        )
    if dropped:
        yield of_dataset.COMMIT_HELD.report(command, names=_are(dropped), datasets=len(dropped))
    if unknown:
        yield of_dataset.DECISION_UNKNOWN.report(command, names=_are(unknown), datasets=len(unknown))


def _not_read(result: StatusResult, command: Command, environment: EnvironmentFindings) -> Iterator[Problem]:
    groups: dict[str, list[DatasetStatusRow]] = {}
    for row in result.datasets:
        if row.status == "idle" and row.reason:
            groups.setdefault(_kind_of_failure(row.reason, environment).id, []).append(row)
    for rows in groups.values():
        first = rows[0]
        yield _kind_of_failure(first.reason, environment).report(
            command,
            names=_names(rows),
            dataset=first.dataset,
            reason=first.reason,
            setting=environment.fails_for_fields,
            datasets=len(rows),
        )


def _kind_of_failure(reason: str, environment: EnvironmentFindings) -> ProblemKind:
    if environment.rejection_fails and is_record(reason, RECORD_REJECTED):
        return of_dataset.RECORDS_REJECTED
    if environment.fails_for_fields and is_record(reason, NEW_FIELDS):
        return of_dataset.NEW_FIELDS_REJECTED
    return of_dataset.WORKER_DIED if is_worker_death(reason) else of_dataset.READ_FAILED


def _losses(result: StatusResult, command: Command) -> Iterator[Problem]:
    last = result.last_run
    if last is not None and (positions_lost := last.totals.positions_lost):
        yield of_job.RECORDS_LOST.report(command, epoch=last.epoch, positions=positions_lost)


def _wrong_clocks(runs: RunsResult, command: Command, now_ms: int) -> Iterator[Problem]:
    rows = [row for row in runs.runs if row.epoch and row.began_ms]
    if not rows or not now_ms:
        return
    newest, before = rows[0], rows[1] if len(rows) > 1 else None
    if newest.began_ms > now_ms + _CLOCK_MS:
        ahead_s = (newest.began_ms - now_ms) / 1000
        evidence = f"the run of epoch {newest.epoch} began {ahead_s:,.0f} s later than the time of this machine"
    elif before is not None and newest.began_ms + _CLOCK_MS < before.began_ms <= now_ms:
        behind_s = (before.began_ms - newest.began_ms) / 1000
        evidence = f"the run of epoch {newest.epoch} began {behind_s:,.0f} s before that of epoch {before.epoch}"
    else:
        return
    yield of_job.CLOCK_WRONG.report(command, host=newest.host or "the run's machine", evidence=evidence)


def _of_runs(
    result: StatusResult, runs: RunsResult, command: Command, needed: str, *, alive: bool
) -> Iterator[Problem]:
    """Report failed runs and unreadable run records. `needed` is the command that must precede the next run, or that
    starts it.
    """
    newest = max((row.epoch for row in runs.runs), default=0)
    if newest and result.is_unfinished and result.epoch > newest and not alive:
        yield of_job.RUN_WITHOUT_RECORD.report(command, epoch=result.epoch)
    if unreadable := [row for row in runs.runs if row.unreadable]:
        first = unreadable[0]
        and_others = f" and those of {len(unreadable) - 1:,} more" if len(unreadable) > 1 else ""
        yield of_job.RUN_RECORD_UNREADABLE.report(
            command, epoch=first.epoch, others=and_others, reason=first.reason, repair=("records",)
        )
    if not runs.failed_in_a_row:
        return
    failed = next(row for row in runs.runs if row.status is RunStatus.FAILED and not row.unreadable)
    count = f"the last {runs.failed_in_a_row:,} runs" if runs.failed_in_a_row > 1 else "the last run"
    if failed.is_dead:
        reason = f"{DIED}: the driver of epoch {failed.epoch}{_on(failed)} ended without recording it"
        yield of_job.RUN_DIED.report(command, runs=count, reason=reason if failed.epoch else failed.reason)
        return
    problem = of_job.RUN_FAILED.report(command, runs=count, reason=failed.reason)
    yield msgspec.structs.replace(problem, command=needed if failed.epoch else problem.command)


def _behind_target(
    result: StatusResult, runs: RunsResult, command: Command, environment: EnvironmentFindings, *, alive: bool
) -> Iterator[Problem]:
    """Report datasets that missed their freshness targets when the newest run began, and a run that is overdue."""
    noted = result.last_run.notes if result.last_run is not None else Reasons()
    if behind := [note for note in noted.entries if note.kind == BEHIND]:
        first, more = behind[0], len(behind) - 1
        names = f"{first.subject} was" if not more else f"{first.subject} and {more:,} more datasets were"
        yield of_dataset.FRESHNESS_MISSED.report(
            command, names=names, dataset=first.subject, reason=first.text, datasets=len(behind)
        )
    began_ms = max((row.began_ms for row in runs.runs if row.epoch), default=0)
    waited_s = (environment.now_ms - began_ms) / 1000
    target_s = environment.freshness.smallest_s
    if not alive and not result.paused_by and began_ms and 0 < target_s < waited_s:
        yield of_job.NO_RECENT_RUN.report(command, seconds=waited_s, target=target_s)


def _input_problems(result: StatusResult, command: Command) -> Iterator[Problem]:
    if result.last_run is None:
        return
    noted = result.last_run.notes.entries
    of = {note.subject: note.text for note in reversed(noted) if note.kind == INPUT_PROBLEM}
    for first, text in list(of.items())[-1:]:
        count = unreadable_files(result.last_run.totals.flow)
        files = count_of(count, "file")
        files += f" of {len(of):,} datasets" if len(of) > 1 else ""
        yield of_dataset.INPUT_PROBLEM_REPORTED.report(
            command, files=files, dataset=first, reason=text, datasets=len(of), epoch=result.last_run.epoch
        )


def _mostly_rejected(command: Command, environment: EnvironmentFindings) -> Iterator[Problem]:
    datasets = environment.mostly_rejected
    if datasets:
        worst, more = max(datasets, key=lambda row: row.rejected), len(datasets) - 1
        yield of_dataset.RECORDS_MOSTLY_REJECTED.report(
            command,
            dataset=worst.dataset,
            rejected=worst.rejected,
            records=worst.records,
            epoch=worst.epoch,
            others=f"; {more:,} more datasets rejected most of theirs" if more else "",
            datasets=len(datasets),
        )


def _on(row: RunRow) -> str:
    return f" on {row.host}" if row.host else ""


def _names(rows: Sequence[DatasetStatusRow]) -> str:
    first, more = rows[0].dataset, len(rows) - 1
    return f"{first} and {more:,} more datasets" if more else first


def _are(rows: Sequence[DatasetStatusRow]) -> str:
    return f"{_names(rows)} {'is' if len(rows) == 1 else 'are'}"
