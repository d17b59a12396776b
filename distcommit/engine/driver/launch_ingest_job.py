"""Launching of the ingest job. If work units kill workers, it is launched again without them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from distcommit.core.errors import ConfigurationError, ProcessLostError
from distcommit.engine.driver.launch_interface import JobFailedError, Launch
from distcommit.engine.driver.phases import Phase
from distcommit.engine.driver.task_reports import Report
from distcommit.engine.reading.ingest import ingest_partition, read_suspect
from distcommit.engine.reading.task_plan import ingest_tasks
from distcommit.engine.reading.worker_deaths import (
    MAX_SUSPECTS,
    WorkerDeaths,
    all_worker_deaths,
)
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.state.run_plans import Manifest
from distcommit.stores.state.task_states import record_ingest_ended

logger = logging.getLogger(__name__)


def run_ingest_job(launch: Launch, settings: RunSettings, manifest: Manifest, phase: Phase) -> tuple[list[Report], str]:
    """Launch the ingest job, and record durably that ingest has ended. Complete datasets are committed even if the job
    fails.

    A job fails if work units have killed the workers of one task as often as Spark retries a task. The job is then
    launched again, and its tasks leave out suspects (`engine.reading.worker_deaths`). Each further launch requires a
    new suspect, and there are at most `MAX_SUSPECTS`. The suspects are read at the end, one after another.

    A task may leave out a work unit that another attempt is reading, and that attempt may then fail because of its
    node. Its marker is gone then, so the work unit is not a suspect. One more launch reads it.

    Returns:
        the reports of the tasks, and the error of the last launch; empty if it succeeded.

    Raises:
        FencedError: if a newer run has fenced this one.
    """
    store, error, is_over, dead = settings.store, "", False, WorkerDeaths()
    reports: list[Report] = []
    while not is_over:
        try:
            launched = launch(ingest_partition, settings, ingest_tasks(settings, manifest), Report)
            left_out = sum(report.counts.work_units_suspected for report in launched)
            is_over = bool(reports) or not left_out or left_out <= all_worker_deaths(launch, settings).number
            reports, error = [*reports, *launched], ""
        except (JobFailedError, ConfigurationError, ProcessLostError) as caught:
            logger.exception("the ingest job failed")
            error = f"ingest: {str(caught) if isinstance(caught, ConfigurationError) else caught.found}"
            before, dead = dead, all_worker_deaths(launch, settings)
            is_first_death = isinstance(caught, ProcessLostError) and not settings.after_death
            settings = replace(settings, after_death=settings.after_death or is_first_death)
            is_over = not is_first_death and not before.number < dead.number <= MAX_SUSPECTS
    if settings.after_death or any(report.counts.work_units_suspected for report in reports):
        reports = [*reports, *_read_suspects(launch, settings)]
    phase.collect(reports)
    with fenced_if_swept(settings):
        record_ingest_ended(store.fs, store.roots.store, settings.run_id)
    return reports, error


def _read_suspects(launch: Launch, settings: RunSettings) -> list[Report]:
    """Read each suspect alone; if its worker dies again, record the failure.

    If there are more than `MAX_SUSPECTS`, each run begins with others.
    """
    reports: list[Report] = []
    suspects = all_worker_deaths(launch, settings).suspects
    first = settings.epoch * MAX_SUSPECTS % len(suspects) if len(suspects) > MAX_SUSPECTS else 0
    for unit_id in (*suspects[first:], *suspects[:first])[:MAX_SUSPECTS]:
        alone = replace(settings, after_death=True, alone=unit_id)
        for _ in range(2):
            try:
                reports += launch(read_suspect, alone, 1, Report)
                break
            except (JobFailedError, ConfigurationError, ProcessLostError) as error:
                logger.exception("the task of a suspected work unit failed", extra={"work_unit": unit_id})
                alone = replace(alone, has_died_alone=isinstance(error, ProcessLostError))
        if any(report.fenced for report in reports):
            break
    if len(suspects) > MAX_SUSPECTS:
        logger.warning("%d suspected work units are left to later runs", len(suspects) - MAX_SUSPECTS)
    return reports


@contextmanager
def fenced_if_swept(settings: RunSettings) -> Iterator[None]:
    """Raise FencedError if a folder is missing because a newer run has deleted it."""
    try:
        yield
    except FileNotFoundError:
        log = settings.store.job_log(settings.epoch)
        require_fence(log.refresh(), settings.epoch, log.folder)
        raise
