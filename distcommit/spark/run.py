"""One run of a job, as the driver sees it: fence, recover, plan, ingest, drain, and add up counts."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from pyspark.errors import PySparkException

from distcommit.model.errors import FencedError
from distcommit.model.log_records import Decide, Record
from distcommit.protocol.fold import Fold
from distcommit.spark.ingest import drain_partition, ingest_partition, ingest_tasks, publish_partition
from distcommit.spark.launch import Launch
from distcommit.spark.planner import PlanReport, plan_partition, share_out
from distcommit.spark.recover import recover_partition
from distcommit.spark.reports import Report, add_up
from distcommit.spark.settings import RunSettings
from distcommit.stores.job_store import JobStore
from distcommit.stores.plans import publish_manifest
from distcommit.stores.task_states import record_ingest_ended

logger = logging.getLogger(__name__)


class RunResult(msgspec.Struct):
    """What a run did. `commits` has one entry for each task that executed steps: process ids and how many.

    `succeeded`: every dataset that was planned is committed or had nothing new, and nothing is left pending.
    """

    run_id: str
    epoch: int
    succeeded: bool
    decided: bool
    seconds: dict[str, float]
    totals: Report
    commits: list[dict[str, int]]
    error: str = ""


def new_run_id() -> str:
    """A run id: sorts by time, and nobody else has it."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"


def recover(launch: Launch, settings: RunSettings) -> Report:
    """Fences all buckets and replays what older runs sealed.

    Raises:
        FencedError: if a newer run was there.
    """
    return _checked(launch(recover_partition, settings, settings.partitions, Report))


def run(
    launch: Launch,
    settings: RunSettings,
    *,
    max_seconds: float = 0,
    phase: Callable[[str], None] = lambda name: None,
) -> RunResult:
    """One whole run of a job whose epoch is fenced in the job log.

    Args:
        launch: runs executor functions; on Spark, `SparkLaunch`.
        settings: the run, with its epoch.
        max_seconds: tasks stop reading this long after ingest began; 0 for no limit.
        phase: told the name of each phase as it begins.

    Raises:
        FencedError: if a newer run has begun. It replays what this one had sealed.
    """
    store, seconds, error = settings.store, {}, ""
    reports: list[Report] = []

    def timed(name: str) -> Callable[[], None]:
        phase(name)
        began = time.monotonic()

        def stop() -> None:
            seconds[name] = round(time.monotonic() - began, 3)

        return stop

    stop = timed("recover")
    recovered = recover(launch, settings)
    reports.append(recovered)
    stop()

    stop = timed("plan")
    plans = launch(plan_partition, settings, settings.partitions, PlanReport)
    planned = _checked([plan.report for plan in plans])
    planned_units = planned.work_units
    planned.work_units = 0
    reports.append(planned)
    manifest = share_out(settings, plans)
    publish_manifest(store.fs, store.roots.store, manifest)
    stop()

    ingested: list[Report] = []
    drained: list[Report] = []
    decided = not settings.job_level or not manifest.files
    if manifest.files:
        stop = timed("ingest")
        if max_seconds:
            settings = replace(settings, deadline_ms=int((time.time() + max_seconds) * 1000))
        try:
            ingested = launch(ingest_partition, settings, ingest_tasks(settings, manifest), Report)
        except PySparkException as caught:  # what was read is committed all the same; the rest fails dataset by dataset
            logger.exception("the ingest job failed")
            error = f"ingest: {str(caught).strip().splitlines()[0] if str(caught).strip() else type(caught).__name__}"
        _checked(ingested)
        record_ingest_ended(store.fs, store.roots.store, settings.run_id)
        stop()

        stop = timed("drain")
        drained = launch(drain_partition, settings, settings.partitions, Report)
        drained_total = _checked(drained)
        if settings.job_level:
            settled = drained_total.datasets_sealed + drained_total.datasets_unchanged
            if settled == planned.datasets_planned and not drained_total.reasons:
                decided = decide_run(store, settings.epoch)
            if decided:
                drained += launch(publish_partition, settings, settings.partitions, Report)
                _checked(drained)
        stop()

    store.job_log(settings.epoch).checkpoint(decided_from=recovered.oldest_held_epoch or settings.epoch)
    totals = add_up([*reports, *ingested, *drained])
    totals.work_units = planned_units
    return RunResult(
        run_id=settings.run_id,
        epoch=settings.epoch,
        succeeded=not error
        and decided
        and totals.datasets_failed + totals.datasets_skipped + totals.sequences_left + totals.reasons_more == 0
        and not totals.reasons,
        decided=decided,
        seconds=seconds,
        totals=totals,
        commits=[
            {"pid": r.worker_pid, "daemon_pid": r.daemon_pid, "steps": r.steps_executed}
            for r in [*ingested, *drained]
            if r.steps_executed
        ],
        error=error,
    )


def decide_run(store: JobStore, epoch: int) -> bool:
    """Decides that the held sequences of `epoch` are published; False if a newer run has fenced the job log."""
    log = store.job_log(epoch)

    def decide(fold: Fold) -> Record | None:
        if fold.fence_epoch != epoch or epoch in fold.decided_epochs:
            return None
        return Decide(epoch)

    return epoch in log.settle(decide).decided_epochs


def _checked(reports: list[Report]) -> Report:
    """The sum of the reports.

    Raises:
        FencedError: if a partition found that a newer run has fenced this one.
    """
    total = add_up(reports)
    if total.fenced:
        raise FencedError(total.fenced)
    return total
