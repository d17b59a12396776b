"""Counts of a run or of any part of it: frozen values that can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import add
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from distcommit.core.records.deferred_records import DeferredCounts
from distcommit.core.work_units import ConstructCounts, TaskOutcome, TaskState

_FEWEST_JUDGED = 10
"""Least number of records from which `RunCounts.is_mostly_rejected` can be true."""
MOST_COUNTERS = 20
"""Maximum number of names of a sink's own counters in a branch."""
OTHER = "other"
"""Name of the counter that sums all further names."""
Counted = TypeVar("Counted", "ConstructCounts", "CheckCounts", "BranchFailures", "SinkCounts", "SinkCounter")


class CheckCounts(Struct, frozen=True, array_like=True):
    """Results of a task checker in a branch."""

    branch: str
    """The branch."""
    checker: str
    """Name of the checker."""
    mandatory: bool
    """Whether a failed check fails the work unit."""
    passed: int = 0
    """Number of attempts that passed."""
    failed: int = 0
    """Number of attempts that did not pass."""


class BranchFailures(Struct, frozen=True, array_like=True):
    """Work units that succeeded although an optional branch failed."""

    branch: str
    """The optional branch."""
    construct: str
    """The construct whose failure made the branch fail."""
    work_units: int = 0
    """Number of work units that succeeded without the branch."""


class SinkCounts(Struct, frozen=True):
    """Counts of the sink of a branch, in all attempts and datasets."""

    branch: str
    """The branch, also an error branch."""
    sink: str
    """Name of the sink."""
    records_written: int = 0
    """Records that were given to its writers."""
    files_written: int = 0
    """Files that its writers staged."""
    commit_attempts: int = 0
    """Requests to its committers; a repeated request counts again."""
    commit_successes: int = 0
    """Requests that were found committed, by this call or an earlier one."""
    commit_retries: int = 0
    """Requests that must be repeated, and retries inside committers."""
    commit_failures: int = 0
    """Requests that can never be committed."""
    commit_in_doubt: int = 0
    """Requests whose outcome is unknown, and requests that must be repeated while their transactions are prepared."""
    target_ms: int = 0
    """Milliseconds from opening to closing its committers, summed over tasks."""


class SinkCounter(Struct, frozen=True):
    """A counter that the writers and committers of a sink increase themselves."""

    branch: str
    """The branch."""
    sink: str
    """Name of the sink."""
    name: str
    """Name of the counter; `other` for names beyond the limit."""
    count: int = 0
    """Sum in all attempts and datasets."""


class FlowCounts(Struct, frozen=True):
    """Sums by construct, by checker, by failed optional branch, and by sink. Their size does not depend on the number
    of attempts.
    """

    constructs: tuple[ConstructCounts, ...] = ()
    """Record counts by branch and construct."""
    checks: tuple[CheckCounts, ...] = ()
    """Check results by branch and checker."""
    failures: tuple[BranchFailures, ...] = ()
    """Failures of optional branches."""
    sinks: tuple[SinkCounts, ...] = ()
    """Counts by branch and sink."""
    counters: tuple[SinkCounter, ...] = ()
    """Counters of sinks by branch, sink and name."""

    @classmethod
    def of(cls, state: TaskState, counters: tuple[SinkCounter, ...] = ()) -> FlowCounts:
        """Return the counts of an attempt, with the counters of its writers."""
        checks = [
            CheckCounts(result.branch, check.checker, check.mandatory, *((1, 0) if check.passed else (0, 1)))
            for result in state.branches
            for check in result.checks
        ]
        failures = [
            BranchFailures(result.branch, result.error_construct, 1)
            for result in state.branches
            if result.error and state.outcome is not TaskOutcome.FAILED
        ]
        sinks = [
            SinkCounts(result.branch, result.sink, result.records_written + result.records_rejected, len(result.files))
            for result in state.branches
        ]
        return cls(state.constructs, tuple(checks), tuple(failures), tuple(sinks), counters)

    @property
    def commit_totals(self) -> dict[str, int]:
        """Counts of commits by name, summed over all sinks."""
        return {name: sum(getattr(counts, name) for counts in self.sinks) for name in COMMIT_COUNTS}

    @property
    def records_filtered(self) -> int:
        """Number of records that constructs left out on purpose, in all attempts and branches."""
        return sum(counts.filtered for counts in self.constructs)

    @property
    def failed_checks(self) -> dict[str, int]:
        """Number of attempts that did not pass, by checker."""
        failed: Counter[str] = Counter()
        for check in self.checks:
            failed[check.checker] += check.failed
        return dict(+failed)

    def __add__(self, other: FlowCounts) -> FlowCounts:
        if not (self and other):
            return self or other
        return FlowCounts(
            tuple(_summed((*self.constructs, *other.constructs), 2)),
            tuple(_summed((*self.checks, *other.checks), 3)),
            tuple(_summed((*self.failures, *other.failures), 2)),
            tuple(_summed((*self.sinks, *other.sinks), 2)),
            tuple(_summed(_limited((*self.counters, *other.counters)), 3)),
        )

    def __bool__(self) -> bool:
        return bool(self.constructs or self.checks or self.failures or self.sinks or self.counters)


def _limited(counters: Iterable[SinkCounter]) -> Iterable[SinkCounter]:
    """Yield the counters. Counters of a sink beyond its first `MOST_COUNTERS` names are renamed to `OTHER`."""
    names: dict[tuple[str, str], set[str]] = {}
    for counter in counters:
        present = names.setdefault((counter.branch, counter.sink), set())
        is_further = counter.name not in present and len(present) >= MOST_COUNTERS
        present.add(OTHER if is_further else counter.name)
        yield replace(counter, name=OTHER) if is_further else counter


def _summed(counts: Iterable[Counted], names: int) -> Iterable[Counted]:
    """Add up counts that are equal in their first `names` fields."""
    sums: dict[tuple[object, ...], Counted] = {}
    for count in counts:
        values = astuple(count)
        total = sums.get(values[:names])
        if total is not None:
            added = map(sum, zip(astuple(total)[names:], values[names:], strict=True))
            count = type(count)(*values[:names], *added)  # noqa: PLW2901 - the running sum
        sums[values[:names]] = count
    return sums.values()


class RunCounts(Struct, frozen=True):
    """Every count of a run, or of a part of it: a phase, a task, a dataset, an attempt, or the progress so far. A part
    leaves the counts at 0 that do not apply to it. Counts add up field by field, with `+` or `RunCounts.total(parts)`.
    """

    buckets: int = 0
    """Buckets that were recovered."""
    sequences_replayed: int = 0
    """Commit sequences of older runs that were finished."""
    sequences_postponed: int = 0
    """Commit sequences that are sealed or staged, and not published yet."""
    sequences_dropped: int = 0
    """Held commit sequences of older runs that were dropped, because their run did not publish."""
    executions_failed: int = 0
    """Failed attempts to finish a commit sequence, over all processes."""
    datasets_planned: int = 0
    """Datasets with work units in the plan."""
    datasets_skipped: int = 0
    """Datasets that were not planned, because of a problem."""
    datasets_committed: int = 0
    """Commit sequences that were closed. Each process that took part counts, so that twins count twice."""
    datasets_published: int = 0
    """Planned datasets that the run has committed, each once."""
    datasets_partial: int = 0
    """Datasets of `datasets_published` that were published without some of their work units."""
    datasets_sealed: int = 0
    """If the job publishes all datasets or none: datasets that are ready, or have nothing to publish."""
    datasets_held: int = 0
    """If the job publishes all datasets or none: planned datasets that the run did not publish."""
    datasets_failed: int = 0
    """Planned datasets of which nothing was committed, because of a failure."""
    datasets_unchanged: int = 0
    """Planned datasets without new records to commit."""
    datasets_quarantined: int = 0
    """Datasets that the run quarantined."""
    work_units: int = 0
    """Planned work units; of a task, those assigned to it."""
    work_units_failed: int = 0
    """Work units whose last attempt failed."""
    work_units_suspected: int = 0
    """Work units that a task left out, to be read alone, because a worker died while it read them."""
    attempts: int = 0
    """Attempts at work units."""
    attempts_failed: int = 0
    """Attempts at work units that failed, also in part."""
    attempt_ms: int = 0
    """Milliseconds from the start to the end of attempts, summed over attempts."""
    records_read: int = 0
    """Records that were read from the source, in all attempts."""
    records_written: int = 0
    """Records that were given to writers, in all attempts and branches."""
    records_rejected: int = 0
    """Records that were rejected to error branches, in all attempts."""
    records_published: int = 0
    """Records in published datasets."""
    positions_lost: int = 0
    """Source positions of published datasets that the plan skipped, because the source has lost them."""
    bytes_read: int = 0
    """Payload bytes that were read from the source, in all attempts."""
    files_published: int = 0
    """Files of published datasets."""
    files_swept: int = 0
    """Staged files of aborted attempts and dead runs that were deleted."""
    steps_executed: int = 0
    """Commit steps that were executed."""
    commit_attempts: int = 0
    """Requests to sinks' committers; a repeated request counts again."""
    commit_successes: int = 0
    """Requests that were found committed, by this call or an earlier one."""
    commit_retries: int = 0
    """Requests that must be repeated, and retries inside committers."""
    commit_failures: int = 0
    """Requests that can never be committed."""
    commit_in_doubt: int = 0
    """Requests whose outcome is unknown, and requests that must be repeated while their transactions are prepared."""
    target_ms: int = 0
    """Milliseconds from opening to closing committers, summed over tasks."""
    size_planned: int = 0
    """Size of the planned work units, in the source's unit (records or bytes)."""
    storage_requests: int = 0
    """Requests to file systems."""
    deferred: DeferredCounts = DeferredCounts()
    """Records that sources left for later runs."""
    flow: FlowCounts = FlowCounts()
    """Counts by construct, checker, failed optional branch and sink."""

    def __add__(self, other: RunCounts) -> RunCounts:
        return RunCounts(*map(add, astuple(self), astuple(other)))

    @classmethod
    def total(cls, parts: Iterable[RunCounts]) -> RunCounts:
        return sum(parts, cls())

    def only(self, *names: str) -> RunCounts:
        """Return the counts of these names; all others are 0."""
        return RunCounts(**{name: getattr(self, name) for name in names})

    @property
    def not_zero(self) -> dict[str, int]:
        """Counts that are not 0, by name, without `deferred` and `flow`."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value and isinstance(value, int)}

    @property
    def records_out(self) -> int:
        """Records that were given to writers or rejected, in all attempts and branches."""
        return self.records_written + self.records_rejected

    @property
    def is_mostly_rejected(self) -> bool:
        """Whether more than half of the records were rejected, of at least ten."""
        return self.records_out >= _FEWEST_JUDGED and 2 * self.records_rejected > self.records_out

    @property
    def failures(self) -> int:
        """Number of failed work units, of failed attempts to finish a commit sequence, and of sequences left open."""
        return self.work_units_failed + self.executions_failed + self.sequences_postponed


COMMIT_COUNTS = (
    "commit_attempts",
    "commit_successes",
    "commit_retries",
    "commit_failures",
    "commit_in_doubt",
    "target_ms",
)
"""Names of the counts of requests to committers."""
EXECUTION_COUNTS = ("steps_executed", *COMMIT_COUNTS, "flow")
"""Names of the counts of executed commit steps and of requests to committers."""
