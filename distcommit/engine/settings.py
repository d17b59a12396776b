"""What every executor function is given: one frozen, picklable value."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

from distcommit.core.ports import Clock
from distcommit.core.records.freshness import NO_TARGETS, Freshness
from distcommit.core.records.log_records import Gate, SealedSequence
from distcommit.engine.clock import SystemClock
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.readiness import CommitPolicy, RetryPolicy
from distcommit.stores.history.retention import USUALLY_KEPT, Retention
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import TaskStateTables


@dataclass(frozen=True, slots=True)
class RunSettings:
    """One run of a job.

    `partitions` is the number of Spark partitions that own buckets: bucket b belongs to partition b mod partitions, in
    every Spark job of the run. `policies`: of datasets whose whole names match these regular expressions, instead of
    `policy`; the first that does counts. `job_level`: publish nothing unless every task of the whole job succeeded.
    `at_least_once`: publish without writing ahead, then move the watermarks.
    `retry_wait_s`: how long a task waits before its second attempt; `retry_across_runs`: whether what could not be
    read is read again by itself first; `stop_after_failed_runs`: after so many runs in a row that could not read it, no
    run plans a dataset (0: each does). `kept_cuts`: how many cuts stay, and with them what their readers need.
    `deadline_ms`: when tasks stop reading (milliseconds since 1970), 0 for never; pacing only. `kept`: of how many
    older runs what they have left is kept. `replays_only`: the one dataset that is replayed, all if empty.
    `freshness`: what is read first, and how much of what has a backlog. `refused`: buckets that this run could not
    recover, once that is known.
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
    kept: Retention = USUALLY_KEPT
    kept_cuts: int = 2
    replays_only: str = ""
    freshness: Freshness = NO_TARGETS
    refused: frozenset[int] = frozenset()
    clock: Clock = field(default_factory=SystemClock)

    @property
    def gate(self) -> Gate:
        """How this run seals."""
        return Gate.HELD if self.job_level else Gate.PASSED if self.at_least_once else Gate.OPEN

    def replays(self, sequence: SealedSequence) -> bool:
        """Whether this run finishes that one, if it is pending: an older run sealed it, and it is asked for."""
        return sequence.epoch < self.epoch and self.replays_only in ("", sequence.dataset_urn)

    def policy_of(self, dataset_urn: str) -> CommitPolicy:
        """What that dataset needs to be committed."""
        matching = (policy for pattern, policy in self.policies if re.fullmatch(pattern, dataset_urn))
        return next(matching, self.policy)

    def task_states(self, buckets: Container[int]) -> TaskStateTables:
        """What is reported in this run of these buckets."""
        return TaskStateTables(self.store.fs, self.store.roots.store, self.run_id, self.partitions, buckets)

    def buckets_of(self, partition: int) -> range:
        """The buckets that a partition owns."""
        return range(partition, self.store.buckets, self.partitions)
