"""One run of a job in the driver, after its epoch was fenced."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import msgspec

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import (
    ConfigurationError,
    FencedError,
    SourceUnavailableError,
    TransientError,
    split_remedy,
)
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.core.records.job_log_records import CutPhase, Head
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.support.io_batching import run_alone
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.engine.committing.drain import drain_partition, publish_partition
from distcommit.engine.committing.recover import RecoverReport, delete_superseded_files, oldest_held, recover_partition
from distcommit.engine.driver.launch_ingest_job import fenced_if_swept, run_ingest_job
from distcommit.engine.driver.launch_interface import Launch
from distcommit.engine.driver.phases import Phase, Phases
from distcommit.engine.driver.task_reports import Report, sum_reports
from distcommit.engine.planning.plan_partition import PlanReport, build_manifest, expire_older_history, plan_partition
from distcommit.engine.reading.worker_deaths import has_died
from distcommit.engine.run_events import NullObserver, Observer, RunEnded
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol import next_log_record
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.logs.log_anchors import record_cut_began, record_cut_ended
from distcommit.stores.snapshots.snapshot_manifests import prepare_snapshots, put_snapshot
from distcommit.stores.snapshots.snapshot_retention import expire_older_snapshots
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import record_settings
from distcommit.stores.state.run_plans import Manifest, put_manifest

logger = logging.getLogger(__name__)


_NO_FIXED_SETTINGS, _NULL_OBSERVER = FixedSettings(), NullObserver()


class RecoverResult(NotebookTable, msgspec.Struct, frozen=True):
    run_id: str
    """Unique id."""
    epoch: int
    """The run's fencing number."""
    succeeded: bool
    """Whether all buckets were recovered, without open sequences."""
    totals: RunCounts
    """Counts of sequences replayed, dropped and left open, datasets quarantined, and files swept."""
    reasons: Reasons = Reasons()
    """Why sequences were left or buckets were not recovered."""
    notes: Reasons = Reasons()
    """Facts that are not failures."""
    oldest_held_epoch: int = 0
    """Oldest epoch of a held sequence; 0 if there is none."""


class RunResult(NotebookTable, msgspec.Struct, frozen=True):
    run_id: str
    """Unique id."""
    epoch: int
    """The run's fencing number."""
    succeeded: bool
    """Whether every planned dataset is published or unchanged, and no sequence is pending."""
    decided: bool
    """False if an all-or-none job published nothing.

    `totals.datasets_held` counts ready datasets; `reasons` name the others.
    """
    seconds: dict[str, float]
    """Duration of each completed phase, by name."""
    totals: RunCounts
    """Counts of all phases."""
    commits: list[dict[str, int]]
    """Process ids and number of executed commit steps of each task that executed any."""
    error: str = ""
    """Why the ingest job failed; empty if it did not."""
    reasons: Reasons = Reasons()
    """Why datasets or buckets were not completed."""
    notes: Reasons = Reasons()
    """Facts that are not failures."""
    oldest_held_epoch: int = 0
    """Oldest epoch of a held sequence of an older run; 0 if there is none."""


def new_run_id() -> str:
    """Return a unique id, which sorts by time to the microsecond."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%S}-{now.microsecond:05x}{uuid.uuid4().hex[:7]}"


def recover(launch: Launch, settings: RunSettings, observer: Observer = _NULL_OBSERVER) -> RecoverResult:
    """Run the recovery of a job, without ingest.

    Raises:
        FencedError: if a newer run has begun.
        StaleStoreError: if the output is older than the store.
    """
    recovered = _recover(launch, settings, Phases(settings.clock, observer))
    expire_older_history(_with_unrecovered_buckets(settings, recovered), 0, 1)
    superseded = launch(delete_superseded_files, settings, settings.partitions, RecoverReport)
    total = sum_reports([recovered.report, *(report.report for report in superseded)])
    if total.fenced:
        raise FencedError.from_text(total.fenced)
    _end_run(settings, _BucketEnds(recovered.report.heads, recovered.report.snapshots))
    succeeded = not recovered.report.reasons and not total.counts.sequences_postponed
    outcome = RunOutcome.SUCCEEDED if succeeded else RunOutcome.INCOMPLETE
    observer.observe(RunEnded(outcome, settings.clock.now_ms(), totals=total.counts))
    return RecoverResult(
        settings.run_id,
        settings.epoch,
        succeeded,
        total.counts,
        total.reasons,
        total.notes,
        recovered.oldest_held_epoch,
    )


def _recover(launch: Launch, settings: RunSettings, phases: Phases) -> RecoverReport:
    with phases("recover") as phase:
        prepare_snapshots(settings.store)
        reports = launch(recover_partition, settings, settings.partitions, RecoverReport)
        report = phase.collect([recover_report.report for recover_report in reports])
        _put_snapshot_manifest(settings, CutPhase.BEGAN, report.snapshots)
        dead_epoch = record_cut_began(settings.store, settings.epoch, report.heads)
        expire_older_snapshots(settings.store, settings.epoch, settings.kept_snapshots)
    return RecoverReport(report, oldest_held(reports), dead_epoch)


def _with_unrecovered_buckets(settings: RunSettings, recovered: RecoverReport) -> RunSettings:
    refused = {*range(settings.store.buckets)} - {head.bucket for head in recovered.report.heads}
    return replace(settings, refused=frozenset(refused))


def run(
    launch: Launch,
    settings: RunSettings,
    *,
    max_seconds: float = 0,
    fixed: FixedSettings = _NO_FIXED_SETTINGS,
    observer: Observer = _NULL_OBSERVER,
) -> RunResult:
    """Run all phases of a job whose epoch is fenced in the job log. Pending sequences are replayed before planning.

    Args:
        launch: runs executor functions; on Spark, `SparkLaunch`.
        settings: settings of the run, with its epoch.
        max_seconds: seconds from the start of ingest after which tasks stop reading; 0 for no limit.
        fixed: settings that give stored state its meaning. The first run records them, later runs must have them.
        observer: receives the run's events; no `RunEnded` if an exception ends the run.

    Raises:
        ConfigurationError: if settings, source or commit groups are not those that filled the store, or executors
            report different sources. Nothing is planned.
        FencedError: if a newer run has begun. The newer run replays all sequences that this run has sealed.
        StaleStoreError: if the output is older than the store. Nothing is planned.
        SourceUnavailableError, TransientError: if no partition could plan anything.
    """
    phases = Phases(settings.clock, observer)
    recovered = _recover(launch, settings, phases)
    settings = _with_unrecovered_buckets(settings, recovered)
    settings = replace(settings, after_death=has_died(settings, recovered.dead_epoch))
    planned, manifest, suspects = _plan(launch, settings, phases, fixed)
    settings = replace(settings, after_death=settings.after_death or suspects > 0)
    ingested: list[Report] = []
    drained: list[Report] = []
    decided, error, bucket_ends = True, "", _BucketEnds(recovered.report.heads, recovered.report.snapshots)
    if settings.job_level and not _covers_whole_source(planned):  # nothing that is read could be published
        decided, drained = False, [Report(RunCounts(datasets_held=planned.counts.datasets_planned))]
    elif manifest.files:
        with phases("ingest") as phase:
            if max_seconds:
                settings = replace(settings, deadline_ms=int((time.time() + max_seconds) * 1000))
            ingested, error = run_ingest_job(launch, settings, manifest, phase)
        with phases("drain") as phase:
            drained, decided = _drain(launch, settings, planned, phase)
        bucket_ends = _final_bucket_ends(recovered, manifest, drained)
    _end_run(settings, bucket_ends, _decided_from(settings, recovered))
    total = sum_reports([recovered.report, planned, *ingested, *drained])
    result = RunResult(
        run_id=settings.run_id,
        epoch=settings.epoch,
        succeeded=decided and _all_published(total),
        decided=decided,
        seconds=phases.seconds,
        totals=total.counts,
        commits=[*_commits(ingested), *_commits(drained)],
        error=error,
        reasons=total.reasons,
        notes=total.notes,
        oldest_held_epoch=recovered.oldest_held_epoch,
    )
    observer.observe(_run_ended(result, settings.clock))
    return result


def _plan(launch: Launch, settings: RunSettings, phases: Phases, fixed: FixedSettings) -> tuple[Report, Manifest, int]:
    """Plan the datasets, and put the manifest; raises the errors of `run`.

    Returns:
        the sum of reports, the manifest, and the number of suspects of earlier runs.
    """
    store = settings.store
    with phases("plan") as phase:
        plans = launch(plan_partition, settings, settings.partitions, PlanReport)
        reports = _with_missing_reports([plan.report for plan in plans], settings.partitions, "plan")
        planned = phase.collect([Report(notes=settings.notes), *reports])
        _require_plans(plans, store)
        record_settings(store, fixed, _source_settings(plans), epoch=settings.epoch)
        manifest = build_manifest(settings, plans)
        with fenced_if_swept(settings):
            put_manifest(store.fs, store.roots.store, manifest)
    return planned, manifest, sum(plan.suspects for plan in plans)


class _BucketEnds(NamedTuple):
    """Log heads and snapshot entries of buckets for a CUT record."""

    heads: tuple[Head, ...]
    snapshots: tuple[BucketSnapshot, ...]


def _final_bucket_ends(recovered: RecoverReport, manifest: Manifest, drained: list[Report]) -> _BucketEnds:
    """Merge the ends of drained buckets with those of other buckets from recovery.

    A bucket whose drain failed has none, so the next run checks it.
    """
    heads = (head for head in recovered.report.heads if head.bucket not in manifest.files)
    snapshots = (entry for entry in recovered.report.snapshots if entry.bucket not in manifest.files)
    return _BucketEnds(
        (*heads, *(head for report in drained for head in report.heads)),
        (*snapshots, *(entry for report in drained for entry in report.snapshots)),
    )


def _end_run(settings: RunSettings, bucket_ends: _BucketEnds, decided_from: int = 0) -> None:
    _put_snapshot_manifest(settings, CutPhase.ENDED, bucket_ends.snapshots)
    record_cut_ended(settings.store, settings.epoch, bucket_ends.heads, decided_from=decided_from)


def _put_snapshot_manifest(settings: RunSettings, phase: CutPhase, snapshots: Iterable[BucketSnapshot]) -> None:
    put_snapshot(settings.store, settings.epoch, settings.run_id, phase, snapshots, settings.clock.now_ms())


def _run_ended(result: RunResult, clock: Clock) -> RunEnded:
    outcome = RunOutcome.SUCCEEDED if result.succeeded else RunOutcome.INCOMPLETE
    outcome = outcome if result.decided else RunOutcome.HELD_BACK
    return RunEnded(outcome, clock.now_ms(), reason=result.error, totals=result.totals)


def _decided_from(settings: RunSettings, recovered: RecoverReport) -> int:
    """Return the oldest epoch whose decision may be needed.

    Return 0 if a bucket was unreadable, because it may have a held sequence.
    """
    all_read = recovered.report.counts.buckets == settings.store.buckets
    return (recovered.oldest_held_epoch or settings.epoch) if all_read else 0


def _all_published(total: Report) -> bool:
    counts = total.counts
    return (
        counts.datasets_published + counts.datasets_unchanged == counts.datasets_planned
        and counts.datasets_partial + counts.datasets_skipped + counts.sequences_postponed == 0
        and not total.reasons
    )


def _require_plans(plans: list[PlanReport], store: JobStore) -> None:
    _require_buckets_of_groups(plans, store.groups)
    _require_any_plan(plans, store.job)


def _require_any_plan(plans: list[PlanReport], job: str) -> None:
    if not all(plan.failure or plan.storage_failure for plan in plans):
        return
    todo = "and run again; pending sequences have been replayed"
    source = next((plan.failure for plan in plans if plan.failure), "")
    if source:
        own = split_remedy(source)[1]
        raise SourceUnavailableError(
            "no dataset could be planned",
            job=job,
            found=source,
            todo=own or f"repair the source or its settings {todo}",
        )
    raise TransientError(
        "the plan cannot be stored",
        id="STORAGE_UNAVAILABLE",
        job=job,
        found=plans[0].storage_failure,
        todo=f"repair the storage {todo}",
    )


def _require_buckets_of_groups(plans: list[PlanReport], groups: CommitGroups) -> None:
    misplaced = next((plan.misplaced for plan in plans if plan.misplaced), "")
    if misplaced:
        raise ConfigurationError(
            "a dataset is stored in another bucket than the one of its commit group",
            id="COMMIT_GROUP_INVALID",
            dataset=misplaced,
            expected="the commit group under which the store has recorded the dataset",
            found=f"commit group {groups.group_of(misplaced)!r}, in another bucket",
            todo="restore the sink's commit_group(). To group by another rule, also change the text of the sink's"
            " grouped_by, then run `distcommit store rebucket JOB.yaml`",
        )


def _source_settings(plans: list[PlanReport]) -> dict[str, FixedSetting]:
    settings: dict[str, FixedSetting] = {}
    for plan in plans:
        for name, pin in plan.source_facts.items():
            if settings.setdefault(name, pin) != pin:
                raise ConfigurationError(
                    "executors found different sources",
                    id="EXECUTORS_DIFFER",
                    setting=name,
                    expected=settings[name].value,
                    found=pin.value,
                    todo="make the names in the job file resolve to the same system wherever the job runs",
                )
    return settings


def _covers_whole_source(planned: Report) -> bool:
    return planned.counts.datasets_skipped == 0 and not planned.reasons


def _drain(launch: Launch, settings: RunSettings, planned: Report, phase: Phase) -> tuple[list[Report], bool]:
    """Drain all partitions. Return the reports, and whether sequences are published.

    An all-or-none job decides first: each planned dataset must be sealed or without output.
    """
    drained = launch(drain_partition, settings, settings.partitions, Report)
    if not settings.job_level:
        phase.collect(drained)
        return drained, True
    drained = _with_missing_reports(drained, settings.partitions, "drain")
    total = phase.collect(drained)
    if total.counts.datasets_sealed != planned.counts.datasets_planned or total.reasons:
        return drained, False
    if not decide_run(settings.store, settings.epoch):
        log = settings.store.job_log(settings.epoch)
        require_fence(log.refresh(), settings.epoch, log.folder)
        return drained, False
    published = launch(publish_partition, settings, settings.partitions, Report)
    phase.collect(published)
    return published, True


def _commits(reports: list[Report]) -> Iterator[dict[str, int]]:
    for report in reports:
        if steps := report.counts.steps_executed:
            yield {"pid": report.worker_pid, "daemon_pid": report.daemon_pid, "steps": steps}


def decide_run(store: JobStore, epoch: int) -> bool:
    """Record the decision to publish held sequences. Return False if a newer run has fenced the log."""
    log = store.job_log(epoch)
    return epoch in run_alone(log.settle(partial(next_log_record.decide, epoch=epoch))).decided_epochs


def _with_missing_reports(reports: list[Report], partitions: int, phase: str) -> list[Report]:
    missing = sorted(set(range(partitions)) - {report.partition for report in reports})
    reasons = (Reasons.of(f"partition {p}", "no report", f"its {phase} task ended without one") for p in missing)
    first = [msgspec.structs.replace(report, reasons=sum(reasons, report.reasons)) for report in reports[:1]]
    return [*first, *reports[1:]]
