"""What of a run that has ended somebody is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from distcommit.app.inspection.commands import command_for
from distcommit.app.inspection.runs import RunRow, RunStatus, failed_in_a_row, read_runs
from distcommit.app.job_file.alert_settings import AlertSettings
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.running.alert_hooks import Alert, tell
from distcommit.core.errors import DistcommitError
from distcommit.core.ports import Clock
from distcommit.stores.history.run_records import RunRecord, read_record
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

_NAMED = 20


@contextmanager
def alerting(folders: JobFolders, store: JobStore, run_id: str, clock: Clock) -> Iterator[None]:
    """When the run is over, however it has ended, tells whom the job names what there is to tell. Nothing that goes
    wrong with that changes how the run ended."""
    try:
        yield
    finally:
        settings = folders.config.alerts
        if settings.hooks:
            try:
                for alert in alerts_of(folders, store, run_id, clock):
                    tell(settings.hooks, alert)
            except (DistcommitError, OSError) as error:
                logger.warning("whether there is something to tell of the run can't be read: %s", error)


def alerts_of(folders: JobFolders, store: JobStore, run_id: str, clock: Clock) -> list[Alert]:
    """What there is to tell of a run that is over: that it makes the row of failures as long as the job says, once for
    each row; that it has quarantined datasets; and that records were lost at the source."""
    settings, rows = folders.config.alerts, read_runs(store, clock).runs
    index = next((index for index, row in enumerate(rows) if row.run_id == run_id and row.epoch), None)
    if index is None:  # it never had an epoch
        return []
    rows = rows[index:]
    record = read_record(store.fs, store.roots.store, rows[0].epoch)
    found: list[Alert] = []
    failed = failed_in_a_row(rows)
    if _reaches(settings, rows):
        text = (
            f"the last {failed} runs of {store.job} have failed" if failed > 1 else f"a run of {store.job} has failed"
        )
        found.append(_alert(folders, store, rows[0], record, "failed runs", text, failed))
    count = record.totals.get("datasets_quarantined", 0) if record else 0
    if settings.on_quarantine and count:
        what = "a dataset is" if count == 1 else f"{count} datasets are"
        text = f"{what} quarantined, and left alone until released"
        found.append(_alert(folders, store, rows[0], record, "quarantine", text, failed))
    lost = record.totals.get("positions_lost", 0) if record else 0
    if settings.on_loss and lost:
        text = f"{lost:,} positions of {store.job} were lost: the source had deleted their records unread"
        found.append(_alert(folders, store, rows[0], record, "records lost", text, failed))
    return found


def _reaches(settings: AlertSettings, rows: Sequence[RunRow]) -> bool:
    """Whether with the first of these runs so many in a row have failed, and when the one before it told its end, had
    not yet: those that died in between could tell nothing."""
    if not settings.after_failed_runs or rows[0].status is not RunStatus.FAILED:
        return False
    could_tell = next((n for n, row in enumerate(rows) if n and row.ended_ms), None)
    before = failed_in_a_row(rows[could_tell:]) if could_tell is not None else 0
    return before < settings.after_failed_runs <= failed_in_a_row(rows)


def _alert(
    folders: JobFolders, store: JobStore, row: RunRow, record: RunRecord | None, why: str, text: str, failed: int
) -> Alert:
    command = command_for(replace(folders, path=folders.path.resolve() if folders.path else None))
    quarantined = record.quarantined if record else None
    count = record.totals.get("datasets_quarantined", 0) if record else 0
    return Alert(
        job=store.job,
        why=why,
        text=text,
        epoch=row.epoch,
        run_id=row.run_id,
        status=row.status.value,
        reason=row.reason,
        failed_in_a_row=failed,
        quarantined=[each.subject for each in quarantined.kept[:_NAMED]] if quarantined else [],
        quarantined_count=count,
        host=row.host,
        store=store.roots.store,
        commands=[command("runs", str(row.epoch)), command("status")],
    )
