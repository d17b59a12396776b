"""The settings of one run, the frozen argument of every executor function."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

from distcommit.core.interfaces.clock import Clock
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.freshness_targets import NO_TARGETS, Freshness
from distcommit.core.records.log_records import Gate
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.records.sequences import SealedSequence
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy, RetryPolicy
from distcommit.stores.history.retention import DEFAULT_RETENTION, Retention
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import TaskStateTables


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one run of a job.

    Attributes:
        store: of the job.
        run_id: of the run.
        epoch: fencing number.
        partitions: number of Spark partitions that own buckets. Bucket b belongs to b mod `partitions`, in every Spark
            job of the run.
        flow: from source to sinks.
        policy: of commits.
        job_level: whether all datasets or none are published.
        min_interval_s: between commits of an ingest task.
        max_attempts: failed replays before quarantine.
        task_attempts: at a work unit in a task.
        deadline_ms: end of reading, in milliseconds since 1970; 0 for never. Correctness does not depend on it.
        policies: (regular expression, policy) pairs, of which the first matching a whole name replaces `policy`.
        at_least_once: whether to publish without writing ahead, and move the watermarks afterwards.
        retry_wait_s: before the second attempt.
        retry_across_runs: policies of ranges that are read again before newer ones.
        stop_after_failed_runs: consecutive failed runs after which a dataset is not planned any more; 0 for never.
        retention: of older runs' history.
        kept_snapshots: number of snapshots that are kept, with the files that their readers need.
        replays_only: the one dataset; empty for all.
        freshness: rules of order, and of backlogs.
        after_death: whether a worker of this run, or all processes of the previous one, died, so that tasks mark work
            units and leave out suspects.
        alone: id of the only work unit; empty for all.
        has_died_alone: whether the previous launch died on it.
        hands_back: whether NodeFailedError makes another executor repeat the task.
        resume_across_runs: whether recovery seals a killed run's finished work units, up to the first gap, of datasets
            without policy `full`.
        notes: on the job file, to report.
        refused: buckets that this run failed to recover; empty before recovery has ended.
        clock: the clock.
    """

    store: JobStore
    run_id: str
    epoch: int
    partitions: int
    flow: TaskFlow
    policy: CommitPolicy
    job_level: bool
    min_interval_s: float
    max_attempts: int
    task_attempts: int
    deadline_ms: int = 0
    policies: tuple[tuple[str, CommitPolicy], ...] = ()
    at_least_once: bool = False
    retry_wait_s: float = 0
    retry_across_runs: RetryPolicy = RetryPolicy.NEVER
    stop_after_failed_runs: int = 0
    retention: Retention = DEFAULT_RETENTION
    kept_snapshots: int = 2
    replays_only: str = ""
    freshness: Freshness = NO_TARGETS
    after_death: bool = False
    alone: str = ""
    has_died_alone: bool = False
    hands_back: bool = False
    resume_across_runs: bool = False
    notes: Reasons = field(default_factory=Reasons)
    refused: frozenset[int] = frozenset()
    clock: Clock = field(default_factory=SystemClock)

    @property
    def gate(self) -> Gate:
        """Held for an all-or-none job, passed with at-least-once, else open."""
        return Gate.HELD if self.job_level else Gate.PASSED if self.at_least_once else Gate.OPEN

    def replays(self, sequence: SealedSequence) -> bool:
        """Return whether this run replays a sequence."""
        return sequence.epoch < self.epoch and self.replays_only in ("", sequence.dataset_urn)

    def policy_of(self, dataset_urn: str) -> CommitPolicy:
        matching = (policy for pattern, policy in self.policies if re.fullmatch(pattern, dataset_urn))
        return next(matching, self.policy)

    def task_states(self, buckets: Container[int]) -> TaskStateTables:
        return TaskStateTables(self.store.fs, self.store.roots.store, self.run_id, self.partitions, buckets)

    def buckets_of(self, partition: int) -> range:
        return range(partition, self.store.buckets, self.partitions)


def step_context(settings: RunSettings) -> StepContext:
    store, roots = settings.store, settings.store.roots
    return StepContext(store.fs, roots.staging, roots.output, settings.flow.committers, store.store_id)
