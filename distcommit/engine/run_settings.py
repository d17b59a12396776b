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
from distcommit.core.records.sealed_sequences import SealedSequence
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
        store: the job's store.
        run_id: the run's id.
        epoch: the run's fencing number.
        partitions: number of Spark partitions that own buckets. Bucket b belongs to partition b mod `partitions`, in
            every Spark job of the run.
        flow: source, converters, checkers, fork and sinks of the job.
        policy: condition under which a dataset is committed.
        job_level: whether datasets are published only if every dataset of the whole job can be published.
        min_interval_s: shortest time between two commits of one ingest task, in seconds.
        max_attempts: number of runs that may fail to replay a sequence before it is quarantined.
        task_attempts: attempts at a work unit within one task.
        deadline_ms: when tasks stop reading, in milliseconds since 1970; 0 for never. Correctness does not depend on
            it.
        policies: (regular expression, policy) pairs. The first expression that matches a dataset's whole name gives the
            dataset's policy in place of `policy`.
        at_least_once: whether to publish without writing ahead, and to move the watermarks afterwards.
        retry_wait_s: seconds before a task's second attempt.
        retry_across_runs: for which policies a range that a run failed to read is read again before anything newer.
        stop_after_failed_runs: consecutive failed runs after which a dataset is not planned any more; 0 for never.
        retention: number of older runs that keep their history.
        kept_snapshots: number of snapshots that are kept, with the files that their readers need.
        replays_only: the one dataset that is replayed; all if empty.
        freshness: rules for which datasets are read first, and how much of a dataset with a backlog.
        after_death: whether a worker of this run, or all processes of the previous run, have died. If so, each task
            writes down the work unit that it reads, and leaves out the work units at which a worker died.
        alone: id of the only work unit that the task reads; empty for all of the task's work units.
        has_died_alone: whether the previous launch died while it read only that work unit.
        hands_back: whether another executor repeats the task if it raises NodeFailedError.
        resume_across_runs: whether recovery seals the work units that a killed run had finished, up to the first gap,
            of datasets whose policy is not `full`.
        notes: notes on the job file, which the run reports and records with its own.
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
        """The gate of new sequences: held for an all-or-none job, passed with at-least-once, else open."""
        return Gate.HELD if self.job_level else Gate.PASSED if self.at_least_once else Gate.OPEN

    def replays(self, sequence: SealedSequence) -> bool:
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
