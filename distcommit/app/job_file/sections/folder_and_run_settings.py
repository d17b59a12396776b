"""The sections of a job file for its folders, runs and commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from distcommit.core.support.setting_checks import check_patterns
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.protocol.seal_decision import CommitPolicy, RetryPolicy
from distcommit.stores.history.retention import DEFAULT_RETENTION
from distcommit.stores.state.job_store import MAX_BUCKETS

_LONGEST_LEASE_S = 30 * 86400
"""The longest lease, in seconds. A timestamp after a longer lease could not be stored."""


class PathSettings(SettingsModel):
    """The job's folders: paths (absolute, or relative to the job file) or URLs.

    Attributes:
        store: watermarks, commit logs, plans, task states, and records of runs. It may be on another file system.
        staging: files of attempts before they are published. On the file system of `output`.
        output: the published files.
    """

    store: str
    staging: str
    output: str


class PolicySettings(SettingsModel):
    """A policy of some datasets.

    Attributes:
        datasets: regular expressions that match their whole names.
        policy: as `commit.policy`.
    """

    datasets: tuple[str, ...] = Field(min_length=1)
    policy: CommitPolicy

    _compile = field_validator("datasets")(check_patterns)


class CommitSettings(SettingsModel):
    """How datasets are committed.

    Attributes:
        buckets: how many commit logs datasets are hashed to, of a new store; later `distcommit store rebucket` changes
            it. Left out: as many as the store has, and 64 of a new one.
        policy: which work units of a dataset must succeed in a run: `full`, all; `successful`, those without a gap
            before them; `partial`, also the part that others had read before they failed.
        policies: policies of some datasets, which override `policy`; the first match counts.
        scope: `dataset`: each is published by itself. `job`: a run publishes all of its datasets, or none.
        delivery: `at_least_once` writes nothing ahead: if a run dies while it publishes, records may be duplicated.
        min_interval_ms: how often a task checks for complete datasets.
        durability: `fsync`: commits survive a crash of the machine. `none`: only a crash of the job.
    """

    buckets: int | None = Field(default=None, ge=1, le=MAX_BUCKETS)
    policy: CommitPolicy = CommitPolicy.FULL
    policies: tuple[PolicySettings, ...] = ()
    scope: Literal["dataset", "job"] = "dataset"
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    min_interval_ms: int = Field(default=500, ge=0)
    durability: Literal["fsync", "none"] = "fsync"

    @property
    def dataset_policies(self) -> tuple[tuple[str, CommitPolicy], ...]:
        return tuple((pattern, policy.policy) for policy in self.policies for pattern in policy.datasets)

    @rule
    def _job_level_is_full(self) -> Iterator[SettingError]:
        if self.scope != "job":
            return
        if self.policy != CommitPolicy.FULL:
            yield SettingError("must be full with scope: job", "policy")
        for index, policy_settings in enumerate(self.policies):
            if policy_settings.policy != CommitPolicy.FULL:
                yield SettingError("must be full with scope: job", "policies", index, "policy")
        if self.delivery == "at_least_once":
            yield SettingError(
                "must be exactly_once with scope: job, because at-least-once publishes each dataset before the job's"
                " decision",
                "delivery",
            )


class ReplaySettings(SettingsModel):
    """When replay gives up on a dataset.

    Attributes:
        max_attempts: runs that may fail to replay a dataset before it is quarantined.
    """

    max_attempts: int = Field(default=3, ge=1)


class TaskSettings(SettingsModel):
    """How often a task tries its work units, and how later runs treat failed ones.

    Attributes:
        attempts: how often a task tries a work unit.
        retry_wait_s: the wait before the second attempt; it doubles with each further one, up to a minute.
        retry_across_runs: whether failed work units are first read alone, and new records in the run after: `never`,
            `always`, or if policy is `full` (`on_full`), or commits parts (`on_partial`).
        resume_across_runs: whether a run first commits the work units that a killed run had finished, up to the first
            gap, and continues there. Requires a `commit.policy` other than `full`, which commits no part of a dataset,
            and `exactly_once`. The job file must be the same in both runs.
        stop_after_failed_runs: runs in a row that may fail to read a dataset before it is stopped; 0: never.
    """

    attempts: int = Field(default=2, ge=1)
    retry_wait_s: float = Field(default=1, ge=0)
    retry_across_runs: RetryPolicy = RetryPolicy.NEVER
    resume_across_runs: bool = False
    stop_after_failed_runs: int = Field(default=0, ge=0)


class RunLimits(SettingsModel):
    """Limits of one run.

    Attributes:
        seconds: tasks stop reading after this long; 0: no limit.
        construct_seconds: how long a converter, a row checker or the fork may work on one batch of records, or compile
            a schema, before its work unit fails. If native code does not return within twice that time, and at least 5
            s more, the worker is killed. 0: no limit.
    """

    seconds: float = Field(default=0, ge=0)
    construct_seconds: float = Field(default=600, ge=0)


class LockSettings(SettingsModel):
    """The job lock.

    Attributes:
        enabled: whether a second run is refused while one is alive; if not, it fences the first, which then ends.
        lease_ttl_s: how long the lock of a dead run blocks others if its death can't be detected.
    """

    enabled: bool = True
    lease_ttl_s: float = Field(default=30, gt=0, le=_LONGEST_LEASE_S)


class RetentionSettings(SettingsModel):
    """How many runs, beside the newest, are recorded.

    Attributes:
        runs: runs whose records are kept, which `distcommit runs` shows.
        tables: runs whose plans, task states and tables of datasets are kept.
    """

    runs: int = Field(default=DEFAULT_RETENTION.runs, ge=1)
    tables: int = Field(default=DEFAULT_RETENTION.tables, ge=1)


class ReaderSettings(SettingsModel):
    """Snapshots for readers.

    Attributes:
        kept_snapshots: how many snapshots stay readable; a run creates two. By default 20, or 2 if the job replaces
            published files, because each snapshot keeps the files that were replaced since.
    """

    kept_snapshots: int | None = Field(default=None, ge=2)
