"""The settings of a job file as one typed tree, and the rules between its sections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from distcommit.app.job_file.sections.alert_settings import AlertSettings
from distcommit.app.job_file.sections.compact_settings import CompactSettings
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.app.job_file.sections.folder_and_run_settings import (
    CommitSettings,
    LockSettings,
    PathSettings,
    ReaderSettings,
    ReplaySettings,
    RetentionSettings,
    RunLimits,
    TaskSettings,
)
from distcommit.app.job_file.sections.freshness_settings import FreshnessSettings
from distcommit.app.job_file.sections.schedule_settings import ScheduleSettings
from distcommit.app.job_file.sections.telemetry_settings import TelemetrySettings
from distcommit.core.records.freshness_targets import NO_TARGETS, Freshness
from distcommit.core.redaction import Redaction
from distcommit.core.support.settings_model import SettingError, rule
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy, RetryPolicy
from distcommit.spark.session_settings import SparkSettings
from distcommit.stores.snapshots.snapshot_manifests import RETAINED_SNAPSHOTS


class JobConfig(FlowSettings):
    """The settings of a job.

    Attributes:
        job: the job's name. Store, staging and output belong to the job of this name.
        paths: folders of the store, of staging and of the output.
        commit: how datasets are committed.
        replay: when replay gives up on a dataset.
        task: how often work units are tried, in a run and by later runs.
        limits: limits of a run.
        lock: lease of the lock that excludes concurrent runs.
        retention: how many runs are recorded.
        alerts: when alerts are sent, and to which hooks.
        readers: snapshots for readers.
        schedule: when a service runs the job; None if no service does.
        freshness: freshness targets; None without the section.
        compact: small files that `distcommit dataset compact` merges; None for its defaults.
        telemetry: where metrics, traces, lineage and logs of runs go.
        spark: the Spark session.
    """

    job: str = Field(min_length=1, max_length=200)
    paths: PathSettings
    commit: CommitSettings = CommitSettings()
    replay: ReplaySettings = ReplaySettings()
    task: TaskSettings = TaskSettings()
    limits: RunLimits = RunLimits()
    lock: LockSettings = LockSettings()
    retention: RetentionSettings = RetentionSettings()
    alerts: AlertSettings = AlertSettings()
    readers: ReaderSettings = ReaderSettings()
    schedule: ScheduleSettings | None = None
    freshness: FreshnessSettings | None = None
    compact: CompactSettings | None = None
    telemetry: TelemetrySettings = TelemetrySettings()
    spark: SparkSettings = SparkSettings()

    @rule
    def _whole_units_are_not_truncated(self) -> Iterator[SettingError]:
        if self.source.reads_whole_units and self.limits.seconds:
            yield SettingError(
                "must not be set for micro-batches, snapshots and Spark's readers, which it would truncate",
                *("limits", "seconds"),
                remedy="remove it, and limit the records of the source instead",
            )

    @rule
    def _failed_ranges_can_be_read_again(self) -> Iterator[SettingError]:
        if self.task.retry_across_runs is not RetryPolicy.NEVER and not self.source.supports_retry_ranges:
            yield SettingError(
                "must be never for this source, because the end of a failed range is unknown (snapshots, micro-batches,"
                " and integers or text of REST)",
                *("task", "retry_across_runs"),
            )

    @rule
    def _killed_runs_can_be_resumed(self) -> Iterator[SettingError]:
        if not self.task.resume_across_runs:
            return
        setting = ("task", "resume_across_runs")
        if {self.commit.policy, *(policy for _, policy in self.commit.dataset_policies)} == {CommitPolicy.FULL}:
            yield SettingError(
                "must be false with commit.policy: full, which commits no part of a dataset",
                *setting,
                remedy="set commit.policy to successful or partial",
            )
        if self.commit.delivery == "at_least_once":
            yield SettingError("must be false with commit.delivery: at_least_once, which seals nothing", *setting)
        for section, sink in self.sink_sections().items():
            if any(committer.prepares_at_target for committer in sink.committers.values()):
                yield SettingError(
                    f"must be false with {section}, whose writers leave data at the target that every run must abort",
                    *setting,
                )

    @rule
    def _snapshots_replace(self) -> Iterator[SettingError]:
        if self.tries_out or not self.source.is_snapshot:
            return
        for section, sink in self.sink_sections().items():
            if sink.publisher != "replace":
                yield SettingError(
                    "must be replace in a sink of type files, because each run reads all records of each dataset (with"
                    " source.watermark, only those above that column's last value)",
                    *(*section.split("."), "publish"),
                )

    @rule
    def _replacing_is_whole(self) -> Iterator[SettingError]:
        sinks = self.sink_sections()
        publishers = {section: sink.publisher for section, sink in sinks.items()}
        for section, sink in sinks.items():
            if sink.replaces_at_target:
                yield from self._cut_short(f"{section}.mode: replace")
        first = next(iter(publishers.values()))
        for section, publisher in publishers.items():
            if publisher != first:
                yield SettingError(
                    f"must be {first} as in the first branch, because records that were rejected before the fork belong"
                    " to all branches",
                    *(*section.split("."), "publish"),
                )
        replacing = [section for section, publisher in publishers.items() if publisher != "append"]
        if not replacing:
            return
        how = f"{replacing[0]}.publish: {publishers[replacing[0]]}"
        for section, sink in sinks.items():
            if not sink.abilities.files:
                yield SettingError(
                    f"must be files with {how}, because tombstones in the output name the replaced files",
                    *(*section.split("."), "type"),
                )
        if self.commit.delivery == "at_least_once":
            yield SettingError(
                f"must be exactly_once with {how}, because a commit names the replaced files before it publishes",
                *("commit", "delivery"),
            )
        yield from self._cut_short(how)

    @property
    def _replaces_at_target(self) -> bool:
        return any(sink.replaces_at_target for sink in self.sink_sections().values())

    def _cut_short(self, how: str) -> Iterator[SettingError]:
        """Yield the settings by which a run may publish a part of a dataset's plan and continue after it."""
        reason = f"with {how}, because a part would replace the whole"
        if self.commit.policy != CommitPolicy.FULL:
            yield SettingError(f"must be full {reason}", "commit", "policy")
        for index, policy_settings in enumerate(self.commit.policies):
            if policy_settings.policy != CommitPolicy.FULL:
                yield SettingError(f"must be full {reason}", "commit", "policies", index, "policy")
        if self.limits.seconds:
            yield SettingError(f"must not be set {reason}", "limits", "seconds")
        for name, branch in self.fork.branches.items() if self.fork is not None else ():
            if branch.optional:
                yield SettingError(
                    f"must not be true with {how}, because the records of a failed branch would not be replaced",
                    *("fork", "branches", name, "optional"),
                )

    @rule
    def _failed_runs_are_recorded(self) -> Iterator[SettingError]:
        if self.alerts.after_failed_runs > self.retention.runs:
            yield SettingError(
                f"must be at most retention.runs ({self.retention.runs}), because it counts recorded runs",
                *("alerts", "after_failed_runs"),
            )

    @rule
    def _source_does_not_read_sinks(self) -> Iterator[SettingError]:
        """Reject a source that reads a target of a sink, for the datasets that the settings name. Datasets that match a
        pattern, and all datasets of a custom source, are checked at planning.
        """
        if self.source.is_imported:
            return
        for section, sink in self.sink_sections().items():
            fixed = {*sink.targets("a")} & {*sink.targets("b")}
            named = {target for urn in self.source.named_datasets for target in sink.targets(urn)}
            for target in sorted({*fixed, *named}, key=str):
                if self.source.reads(target.apart_from(self.spark.catalogs)):
                    hint = f", or {self.source.false_match_hint}" if self.source.false_match_hint else ""
                    yield SettingError(
                        f"must not write to {target.kind} {target.name}, which the source reads: each run would read"
                        " the output of the previous one",
                        *section.split("."),
                        remedy=f"exclude it from the source, or write elsewhere{hint}",
                    )

    @rule
    def _targets_can_be_met(self) -> Iterator[SettingError]:
        interval_s = self.schedule.interval_s if self.schedule is not None else None
        if interval_s is not None and 0 < self.targets.smallest_s < interval_s:
            yield SettingError(
                f"must be at most the smallest freshness target ({self.targets.smallest_s:g} s), because a record waits"
                " as long for the next run",
                *("schedule", "interval_s"),
            )

    @rule
    def _files_can_be_compacted(self) -> Iterator[SettingError]:
        if self.compact is None:
            return
        if self.commit.delivery == "at_least_once":
            yield SettingError("must be exactly_once with the section compact", "commit", "delivery")
        yield from self.compact.sink_errors(self.sink_sections())

    @rule
    def _previews_are_whole(self) -> Iterator[SettingError]:
        for section, sink in self.sink_sections().items():
            if self.tries_out and not sink.preview_records:
                yield SettingError(
                    "must be console in all branches, because a preview commits nothing", *section.split("."), "type"
                )

    @rule
    def _sinks_can_deliver(self) -> Iterator[SettingError]:
        sinks = self.sink_sections()
        if self.commit.delivery == "exactly_once":
            for section, sink in sinks.items():
                if not sink.abilities.exactly_once:
                    yield SettingError(
                        f"must be at_least_once, because {section} has no committer: its records are visible when"
                        " written, and those of a failed attempt are duplicated",
                        *("commit", "delivery"),
                    )
        for section, sink in sinks.items() if self.commit.delivery == "at_least_once" else ():
            if not sink.abilities.at_least_once:
                yield SettingError(
                    f"must be exactly_once, because {section} recognizes a commit by one row for each dataset and"
                    " epoch: a second attempt would seem to be committed, and its records might be missing",
                    *("commit", "delivery"),
                )

    def task_flow(self) -> TaskFlow:
        """Return the job's task flow with the job's limits."""
        hidden = Redaction.current_values()
        return replace(super().task_flow(), construct_seconds=self.limits.construct_seconds, hidden=hidden)

    @property
    def targets(self) -> Freshness:
        if self.freshness is None:
            return NO_TARGETS
        takes_places = self.task_flow().publish != "append" or self._replaces_at_target
        return self.freshness.freshness(can_stop=not self.source.reads_whole_units and not takes_places)

    @property
    def kept_snapshots(self) -> int:
        """Number of snapshots that stay readable."""
        return self.readers.kept_snapshots or (RETAINED_SNAPSHOTS if self.task_flow().publish == "append" else 2)

    @property
    def tries_out(self) -> bool:
        """Whether the job is a preview, whose folders are deleted after the run."""
        return any(sink.preview_records for sink in self.sink_sections().values())
