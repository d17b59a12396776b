"""The alerts of a run that has ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from distcommit.app.inspection.problems.dataset_problem_kinds import DATASET_QUARANTINED
from distcommit.app.inspection.problems.job_problem_kinds import RECORDS_LOST, RUN_FAILED
from distcommit.app.inspection.problems.problem_kind import ProblemKind
from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.inspection.recorded_runs import RunRow, RunStatus, failed_in_a_row, read_runs
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.sections.alert_settings import AlertSettings
from distcommit.app.running.alert_delivery import Alert, send_alert
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.clock import Clock
from distcommit.stores.history.run_records import RunRecord, read_record
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

ALERTS: Mapping[str, ProblemKind] = {
    "failed runs": RUN_FAILED,
    "quarantine": DATASET_QUARANTINED,
    "records lost": RECORDS_LOST,
}
"""The kind of problem that each alert reports, by `Alert.trigger`."""
_NAMED = 20


@contextmanager
def alerting(folders: JobFolders, store: JobStore, run_id: str, clock: Clock) -> Iterator[None]:
    """Send the run's alerts when the block ends, normally or by an error. A failed delivery does not change the
    run's outcome.
    """
    try:
        yield
    finally:
        settings = folders.config.alerts
        if settings.hooks:
            try:
                for alert in alerts_of(folders, store, run_id, clock):
                    send_alert(settings.hooks, alert)
            except (DistcommitError, OSError) as error:
                logger.warning("the run's record can't be read, so no alert is sent: %s", error)


def alerts_of(folders: JobFolders, store: JobStore, run_id: str, clock: Clock) -> list[Alert]:
    """Return the alerts of an ended run: several consecutive runs failed (reported once), datasets were quarantined, or
    the source had lost records.
    """
    settings, rows = folders.config.alerts, read_runs(store, clock).runs
    index = next((index for index, row in enumerate(rows) if row.run_id == run_id and row.epoch), None)
    if index is None:  # it never had an epoch
        return []
    rows = rows[index:]
    record = read_record(store.fs, store.roots.store, rows[0].epoch)
    texts: dict[str, str] = {}
    failed = failed_in_a_row(rows)
    if _reaches(settings, rows):
        runs = f"the last {failed} runs of {store.job} have" if failed > 1 else f"a run of {store.job} has"
        texts["failed runs"] = f"{runs} failed"
    count = record.totals.datasets_quarantined if record else 0
    if settings.on_quarantine and count:
        datasets = "a dataset is" if count == 1 else f"{count} datasets are"
        texts["quarantine"] = f"{datasets} quarantined, and not read until released"
    positions_lost = record.totals.positions_lost if record else 0
    if settings.on_loss and positions_lost:
        texts["records lost"] = (
            f"{positions_lost:,} positions of {store.job} were lost: the source had deleted unread records"
        )
    return [_alert(folders, store, rows[0], record, reason, text, failed) for reason, text in texts.items()]


def _reaches(settings: AlertSettings, rows: Sequence[RunRow]) -> bool:
    """Return whether the number of consecutive failed runs has reached the limit with the newest run.

    A run that died has sent no alert. Therefore runs that died since the last recorded end count as part of the newest
    run.
    """
    if not settings.after_failed_runs or rows[0].status is not RunStatus.FAILED:
        return False
    previous = next((index for index, row in enumerate(rows) if index and row.ended_ms), None)
    before = failed_in_a_row(rows[previous:]) if previous is not None else 0
    return before < settings.after_failed_runs <= failed_in_a_row(rows)


def _alert(
    folders: JobFolders, store: JobStore, row: RunRow, record: RunRecord | None, trigger: str, text: str, failed: int
) -> Alert:
    command = command_for(replace(folders, path=folders.path.resolve() if folders.path else None))
    quarantined, kind = record.quarantined if record else None, ALERTS[trigger]
    count = record.totals.datasets_quarantined if record else 0
    return Alert(
        job=store.job,
        trigger=trigger,
        text=text,
        id=kind.id,
        severity=kind.severity,
        title=kind.title,
        impact=kind.impact,
        action=kind.action,
        epoch=row.epoch,
        run_id=row.run_id,
        status=row.status.value,
        reason=row.reason,
        failed_in_a_row=failed,
        quarantined=[recorded.subject for recorded in quarantined.entries[:_NAMED]] if quarantined else [],
        quarantined_count=count,
        host=row.host,
        store=store.roots.store,
        commands=[command("runs", str(row.epoch)), command("status")],
    )
