"""What is wrong with a job, a line each, with the command that resolves it or shows more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distcommit.app.inspection.commands import Command
from distcommit.app.inspection.environment_checks import NAMED, Around
from distcommit.app.inspection.release_plan import way_out
from distcommit.app.inspection.runs import DIED, RunRow, RunsResult, RunStatus
from distcommit.app.inspection.status import (
    BUCKET,
    JOB_LOG,
    WAITING,
    DatasetStatusRow,
    NextRun,
    StatusResult,
    Trouble,
    waiting,
)
from distcommit.core.error_kinds import is_record
from distcommit.core.errors import NEW_FIELDS, TURNED_AWAY, shortened_cause
from distcommit.core.records.freshness import BEHIND
from distcommit.core.run_outcome import RunOutcome
from distcommit.stores.history.run_records import NOT_PLANNED, RecordedReason, RecordedReasons
from distcommit.stores.logs.fencing import UNFINISHED_REBUILD
from distcommit.stores.state.damaged_files import SETTINGS_RECORD

_TEXT = 300
_CLOCK_MS = 60_000
"""Clocks that differ by less are no trouble."""
_NOTHING = Around()


def troubles_of(result: StatusResult, runs: RunsResult, command: Command, around: Around = _NOTHING) -> list[Trouble]:
    """The job's troubles, those first that hold up most: at most twenty of a kind are told one by one."""
    alive = any(row.status in (RunStatus.RUNNING, RunStatus.PENDING) and not row.overdue for row in runs.runs)
    causes = [
        *_of_folders(around, command),
        *_of_locks(runs, command),
        *_of_still(result, runs, command, around),
        *_of_stores(result, command, around),
        *_of_quarantined(result, command, around),
        *_of_whole_jobs(result, command),
        *_of_unplanned(result, command),
        *([] if around.elsewhere else _of_pending(result, command, alive=alive)),
        *_of_unread(result, command, around),
        *_of_losses(result, command),
        *_of_clocks(runs, command, around.now_ms),
    ]
    plain = command("run")
    needed = next((cause.command for cause in causes if cause.command != plain), plain)
    return [
        *causes,
        *_of_runs(result, runs, command, needed, alive=alive),
        *_of_freshness(result, runs, command, around, alive=alive),
        *_of_schedule(result, command),
    ]


def _of_folders(around: Around, command: Command) -> Iterator[Trouble]:
    for why in around.closed:
        yield Trouble(f"{why}, then run again; nothing is lost", command("run"))


def _of_locks(runs: RunsResult, command: Command) -> Iterator[Trouble]:
    for row in runs.runs:
        if row.overdue:
            which = f"the run of epoch {row.epoch}" if row.epoch else "a run that has no epoch yet"
            yield Trouble(f"the job lock is stuck: {which} holds it, and {row.reason}", command("cancel"))


def _of_still(result: StatusResult, runs: RunsResult, command: Command, around: Around) -> Iterator[Trouble]:
    for row in runs.runs:
        still_s = around.still.get(row.run_id, 0)
        if still_s and not row.began_ms and result.moving_to:  # only runs leave a beginning
            what = (
                f"the move to {result.moving_to} buckets stands still: {row.reason} lives, and nothing of it has moved"
                f" for {still_s:,.0f} s. Nobody can tell it to end: if what it waits for will not come, end that"
                " process, then go on with it"
            )
            yield Trouble(what, command("store rebucket", f"--buckets={result.moving_to}"))
        elif still_s and not row.epoch:
            what = (
                f"a run has no epoch after {still_s:,.0f} s: {row.reason} lives, and Spark has not begun it."
                " Nothing of it is sealed: if what it waits for will not come, end that process, then run again"
            )
            yield Trouble(what, command("run"))
        elif still_s and not row.began_ms and around.newer == UNFINISHED_REBUILD:  # only runs leave a beginning
            what = (
                f"the rebuild of epoch {row.epoch} stands still: {row.reason} lives, and nothing of it has moved for"
                f" {still_s:,.0f} s. Nobody can tell it to end: if what it waits for will not come, end that process,"
                " then rebuild again"
            )
            yield Trouble(what, command("store rebuild"))
        elif still_s:
            what = (
                f"the run of epoch {row.epoch} stands still: its driver{_on(row)} lives, and nothing of it has moved"
                f" for {still_s:,.0f} s. If it is no source or target that takes so long, end it, and run again: what"
                " it has sealed is replayed"
            )
            yield Trouble(what, command("cancel"))


def _of_stores(result: StatusResult, command: Command, around: Around) -> Iterator[Trouble]:
    if around.newer:
        mend = ("rebuild",) if around.newer == UNFINISHED_REBUILD else ()
        yield Trouble(
            f"the store is older than what was published from it: {around.newer}", command("store rebuild"), mend=mend
        )
    if around.older:
        what = (
            f"the output is older than the store, or another one: {around.older}. Correct paths.output, or put it back"
        )
        yield Trouble(what, command("store rebuild", "--keep-watermarks", "--dry-run"))
    if around.elsewhere:
        what = "what is pending was staged in another folder than paths.staging is now. Mount its disk, or correct it"
        yield Trouble(what, command("store rebuild", "--keep-watermarks", "--dry-run"))
    if result.moving_to:
        what = f"a move to {result.moving_to} buckets is half made, and until it is finished no run begins"
        move = ("rebucket", str(result.moving_to))
        yield Trouble(what, command("store rebucket", f"--buckets={result.moving_to}"), mend=move)
    for name, error in list(result.unreadable.items())[:NAMED]:
        mend = ("rebuild",) if name in result.damaged and name != SETTINGS_RECORD else ()
        yield Trouble(f"{name} can't be read: {_short(error)}", _for_log(name, result, command), mend=mend)


def _for_log(name: str, result: StatusResult, command: Command) -> str:
    """What mends a log that can't be read, or shows more of it."""
    if name in result.damaged:
        return command("store rebuild")
    if not name.startswith((BUCKET, JOB_LOG)):
        return command("store verify")
    return (
        command("store log", f"--bucket={name.removeprefix(BUCKET)}")
        if name.startswith(BUCKET)
        else command("store log")
    )


_STOPPED = {"quarantined": "retry", "revoking": "abandon", "stopped": "retry"}
_MEANS = {
    "quarantined": "quarantined, and left alone until it is released (retry, accept or abandon)",
    "revoking": "being abandoned, which was not finished",
    "stopped": "stopped, as too many runs in a row could not read it",
}


def _of_quarantined(result: StatusResult, command: Command, around: Around) -> Iterator[Trouble]:
    """Those that wait for a person, with one reason together; what is lost of one is looked at as it is now."""
    groups = waiting(result)
    many_gone = sum(step.gone for step in around.lacking.values()) > 1
    for rows in groups[:NAMED]:
        first, status = rows[0], rows[0].status
        others = f" and {len(rows) - 1:,} more with the same reason" if len(rows) > 1 else ""
        what = f"{first.dataset}{others}: {_MEANS[status]}: {_short(first.reason)}"
        how = (way_out(first.reason) if status == "quarantined" else None) or _STOPPED[status]
        lost = around.lacking.get(first.dataset) if status == "quarantined" else None
        if lost is not None and lost.gone:
            how = "abandon"
            what = (
                f"{first.dataset}{others}: quarantined, as a sealed file is gone: {_short(lost.what)}. Abandoned, its"
                " records are read again (or put the file back, and release it with retry)"
            )
        elif lost is not None:
            what = (
                f"{first.dataset}{others}: quarantined, as something else is where its file belongs:"
                f" {_short(lost.why)}. Move that away, then release it"
            )
        is_one_of_many = status != "revoking" and (len(rows) > 1 or (how == "abandon" and many_gone))
        words = ("--all", how) if is_one_of_many else (first.dataset, how)
        mend = ("abandon", *(row.dataset for row in rows)) if status == "revoking" else ()
        yield Trouble(what, command("dataset release", *words, named=words[0] != "--all"), len(rows), mend)
    if left := groups[NAMED:]:
        count = sum(map(len, left))
        yield Trouble(f"and {count:,} datasets more that wait for a person", command("status", "--all"), count)


def _of_whole_jobs(result: StatusResult, command: Command) -> Iterator[Trouble]:
    """Of jobs that publish all or nothing: why the last run published nothing, by dataset, and what keeps the next."""
    if not result.whole_job:
        return
    blocking = [row.dataset for row in result.datasets if row.status in WAITING]
    if blocking:
        what = (
            f"the next run publishes nothing: the job publishes all datasets or none, and {_names(blocking)} can't be"
        )
        yield Trouble(what, command("dataset release", "--all", "retry"), len(blocking))
    unreadable = [name for name in result.unreadable if name.startswith(BUCKET)]
    if unreadable:
        others = f" and {len(unreadable) - 1:,} more" if len(unreadable) > 1 else ""
        what = (
            "the next run publishes nothing: the job publishes all datasets or none, and those of"
            f" {unreadable[0]}{others} can't be, as its log can't be read"
        )
        yield Trouble(what, _for_log(unreadable[0], result, command))
    last = result.last_run
    if last is None or last.outcome is not RunOutcome.HELD_BACK:
        return
    for reason in last.reasons.kept[:NAMED]:
        what = f"the last run published nothing, because of {reason.subject}: {reason.kind}: {_short(reason.text)}"
        yield Trouble(what, _remedy(reason, result, command), 1)
    more = max(0, len(last.reasons.kept) - NAMED) + last.reasons.left_out
    if more:
        yield Trouble(f"and because of {more:,} more", command("runs", str(last.epoch)), more)


def _of_unplanned(result: StatusResult, command: Command) -> Iterator[Trouble]:
    """What the newest run could not plan, with what the source says to it."""
    last = result.last_run
    if last is None or last.error or result.whole_job:
        return
    found = [reason for reason in last.reasons.kept if reason.kind == NOT_PLANNED]
    for reason in found[:NAMED]:
        yield Trouble(
            f"{reason.subject} could not be planned: {_short(reason.text)}", _remedy(reason, result, command), 1
        )
    more = len(found[NAMED:])
    if more:
        yield Trouble(f"and {more:,} datasets more that could not be planned", command("runs", str(last.epoch)), more)


def _remedy(reason: RecordedReason, result: StatusResult, command: Command) -> str:
    """The command that the source has named for it, unless a person has done what it asks for since: then a run."""
    changed = any(row.dataset == reason.subject and row.set_since for row in result.datasets)
    name, *words = reason.remedy if reason.remedy and not changed else ("run",)
    return command(name, *words, named=not any(word.startswith("--set=") for word in words))


def _of_pending(result: StatusResult, command: Command, *, alive: bool) -> Iterator[Trouble]:
    """What the next run does with what is pending; while a run lives, that is nothing wrong."""
    pending = [row for row in result.datasets if row.status == "pending"]
    if alive or not pending:
        return
    replayed = [row.dataset for row in pending if row.next_run is NextRun.REPLAYS]
    dropped = [row.dataset for row in pending if row.next_run in (NextRun.DROPS, NextRun.UNDECIDED)]
    unknown = [row.dataset for row in pending if row.next_run is NextRun.UNKNOWN]
    failing = next((row for row in pending if row.reason), None)
    why = f"; of {failing.dataset} it was said: {_short(failing.reason)}" if failing else ""
    if replayed:
        what = f"{_names(replayed)} sealed and not closed: the next run replays them{why}"
        yield Trouble(what, command("recover"), len(replayed), ("recover",))
    if dropped:
        what = f"{_names(dropped)} held back with their run: the next one drops them, and reads their records again"
        yield Trouble(what, command("run"), len(dropped))
    if unknown:
        what = f"{_names(unknown)} held back, and the job log, which says whether they are decided, can't be read"
        yield Trouble(what, command("store log"), len(unknown))


def _of_unread(result: StatusResult, command: Command, around: Around) -> Iterator[Trouble]:
    """What could not be read, together where one command is for all of it."""
    groups: dict[tuple[str, str], list[DatasetStatusRow]] = {}
    for row in result.datasets:
        if row.status == "idle" and row.reason:
            groups.setdefault(_to_be_read(row.reason, command, around), []).append(row)
    for (todo, how), rows in groups.items():
        first = rows[0]
        what = (
            f"{_names([row.dataset for row in rows])} could not be read: {first.dataset}: {_short(first.reason)}{todo}"
        )
        yield Trouble(what, how, len(rows))


def _of_losses(result: StatusResult, command: Command) -> Iterator[Trouble]:
    """What the newest run has passed over, as its source had deleted it."""
    lost = result.last_run.totals.get("positions_lost", 0) if result.last_run is not None else 0
    if result.last_run is not None and lost:
        what = (
            f"RECORDS_LOST: the run of epoch {result.last_run.epoch} passed over {lost:,} positions whose records the"
            " source had deleted before they were read. `audit` counts them; the next run reads what comes after them"
        )
        yield Trouble(what, command("run"))


def _to_be_read(reason: str, command: Command, around: Around) -> tuple[str, str]:
    """What a person may want to know before they give the command, and the command."""
    if around.turned_away_fails and is_record(reason, TURNED_AWAY):
        todo = ". Diverted, such records are kept in the error branch, and the others go on; once the job file or the"
        return f"{todo} producer is mended, `dataset reprocess` publishes them", command(
            "run", "--set=on_rejected=divert"
        )
    if around.fails_for_fields and is_record(reason, NEW_FIELDS):
        todo = ". If the new fields are meant to be there, let this run take them in: they are known from then on"
        return todo, command("run", f"--set={around.fails_for_fields}=evolve")
    return "", command("run")


def _of_clocks(runs: RunsResult, command: Command, now_ms: int) -> Iterator[Trouble]:
    """That the newest run began later than now, or before the run before it."""
    known = [row for row in runs.runs if row.epoch and row.began_ms]
    if not known or not now_ms:
        return
    newest, before = known[0], known[1] if len(known) > 1 else None
    if newest.began_ms > now_ms + _CLOCK_MS:
        ahead_s = (newest.began_ms - now_ms) / 1000
        found = f"the run of epoch {newest.epoch} began {ahead_s:,.0f} s later than it is now on this machine"
    elif before is not None and newest.began_ms + _CLOCK_MS < before.began_ms <= now_ms:
        behind_s = (before.began_ms - newest.began_ms) / 1000
        found = (
            f"the run of epoch {newest.epoch} began {behind_s:,.0f} s before that of epoch {before.epoch}, by its clock"
        )
    else:
        return
    what = (
        f"a clock is wrong: {found}; look at {newest.host or 'its machine'}. What is read by time (files that have"
        " settled, lookbacks) may be held up, and `dataset expire` goes by it. Set the clock, then run again"
    )
    yield Trouble(what, command("run"))


def _of_runs(
    result: StatusResult, runs: RunsResult, command: Command, needed: str, *, alive: bool
) -> Iterator[Trouble]:
    """What is wrong with runs. `needed`: the command without which the next run fails again, if there is one."""
    newest = max((row.epoch for row in runs.runs), default=0)
    if newest and result.unended and result.epoch > newest and not alive:
        what = f"the run of epoch {result.epoch} began, and has left no record: it could not go on, or died at once"
        yield Trouble(what, command("run"))
    unreadable = [row for row in runs.runs if row.unreadable]
    for row in unreadable[:1]:
        others = f", nor those of {len(unreadable) - 1:,} more" if len(unreadable) > 1 else ""
        what = f"the record of the run of epoch {row.epoch} can't be read{others}: {_short(row.reason)}"
        yield Trouble(what, command("store repair"), mend=("records",))
    if not runs.failed_in_a_row:
        return
    count = f"the last {runs.failed_in_a_row:,} runs" if runs.failed_in_a_row > 1 else "the last run"
    failed = next(row for row in runs.runs if row.status is RunStatus.FAILED and not row.unreadable)
    why = failed.reason
    if failed.died and failed.epoch:
        why = (
            f"{DIED}: the driver of epoch {failed.epoch}{_on(failed)} has told no end,"
            " and lives no more. The next run replays what it had sealed, and reads the rest again"
        )
    yield Trouble(f"{count} failed: {_short(why)}", needed if failed.epoch and not failed.died else command("run"))


def _on(row: RunRow) -> str:
    return f" on {row.host}" if row.host else ""


def _of_freshness(
    result: StatusResult, runs: RunsResult, command: Command, around: Around, *, alive: bool
) -> Iterator[Trouble]:
    """Who is behind its target: by what the newest run has found as it began, and as no run has begun for too long."""
    noted = result.last_run.notes if result.last_run is not None else RecordedReasons()
    behind = [note for note in noted.kept if note.kind == BEHIND]
    if behind:
        worst = behind[0]
        names = _names([note.subject for note in behind])
        be = "was" if len(behind) == 1 else "were"
        what = f"{names} {be} behind the freshness target when the last run began: {worst.subject}: {worst.text}"
        yield Trouble(what, command("dataset list", "--lag", "--sort=behind"), len(behind))
    began_ms = max((row.began_ms for row in runs.runs if row.epoch), default=0)
    waited_s = (around.now_ms - began_ms) / 1000
    target_s = around.freshness.smallest_s
    if not alive and not result.paused_by and began_ms and 0 < target_s < waited_s:
        what = f"no run has begun for {waited_s:,.0f} s, longer than the smallest freshness target, {target_s:g} s"
        yield Trouble(what, command("run"))


def _of_schedule(result: StatusResult, command: Callable[..., str]) -> Iterator[Trouble]:
    if result.paused_by:
        yield Trouble(f"paused by {result.paused_by}: no service runs it by its schedule", command("schedule resume"))


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more datasets"


def _short(text: str) -> str:
    return shortened_cause(text, _TEXT)
