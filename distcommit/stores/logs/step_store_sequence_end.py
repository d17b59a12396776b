"""The end of a commit sequence of `LogCommitStepStore`: closed, quarantined or failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from distcommit.core.errors import DistcommitError, LostError, add_ids, plain_text
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.steps.failure_classification import classify_failures
from distcommit.steps.step_registry import dump_steps
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.logs.generation_checks import require_not_moved
from distcommit.stores.logs.record_changed_steps import record_changed_steps
from distcommit.stores.state.job_store import JobStore


@dataclass(slots=True)
class OpenStore:
    """An open store of one job in this process.

    Attributes:
        store: the durable state of the job.
        run_id: id under which the logs are fenced.
        epoch: epoch that the logs are fenced for.
        logs: logs of the buckets by number.
        unfenced: buckets whose log was corrupt when the job was fenced. Each is fenced before its next use.
        unsealed: steps that are not sealed yet, in execution order by dataset URN.
    """

    store: JobStore
    run_id: str
    epoch: int
    logs: dict[int, CommitLog] = field(default_factory=dict)
    unfenced: set[int] = field(default_factory=set)
    unsealed: dict[str, list[CommitStep]] = field(default_factory=dict)


@dataclass(slots=True)
class SequenceEnd:
    """The end of one sealed sequence, to be recorded in its bucket's log.

    Attributes:
        opened: the store, with the epoch that ends the sequence.
        log: log of the dataset's bucket.
        executed: the sequence, with the recorded rows of the steps in this process.
    """

    opened: OpenStore
    log: CommitLog
    executed: SealedSequence

    @property
    def name(self) -> SequenceName:
        return SequenceName(self.executed.dataset_urn, self.executed.epoch)

    @property
    def bucket(self) -> int:
        return self.opened.store.bucket_of(self.name.dataset_urn)

    def close(self) -> None:
        """Record in the log that the sequence is done. All of its effects must be durable.

        Raises:
            FencedError: if a newer process has fenced the log.
            ConflictError, StaleStoreError: if the log has ended; see `require_not_moved`.
        """
        fold = run_alone(self.log.settle(partial(next_log_record.close, epoch=self.opened.epoch, names=(self.name,))))
        if fold.sequence(self.name) is not None:
            require_fence(fold, self.opened.epoch, self.log.folder)
        require_not_moved(self.opened.store, fold)

    def quarantine(self, reason: str) -> None:
        self._count_failure(reason, for_good=True, max_attempts=1)

    def lose(self, error: LostError) -> LostError:
        """Quarantine a sequence with a lost step; return the error to raise."""
        add_ids(error, bucket=self.bucket)
        self.quarantine(str(error))
        store, urn = self.opened.store.job, self.name.dataset_urn
        ids = {key: value for key, value in error.ids.items() if key not in ("store", "dataset")}
        todo = (
            f"restore the missing data and call release({store!r}, {urn!r}, 'retry'), then commit; or release it with"
        )
        return LostError(
            error.failure,
            id="SEQUENCE_LOST",
            expected=error.expected,
            found=error.found,
            todo=f"{todo} 'accept' (its unpublished data is lost) or 'abandon'",
            store=store,
            dataset=urn,
            **ids,
        )

    def fail(
        self, steps: Sequence[CommitStep], context: StepContext, max_attempts: int, error: DistcommitError
    ) -> DistcommitError:
        """Record changed steps, count a failed replay once per epoch, and return the error.

        Failures in the process that sealed the sequence, outages, and failures with recorded changes do not count.
        """
        opened, name = self.opened, self.name
        failed = {name: error}
        has_progressed = self._record_changes(steps, failed)
        error = failed[name]
        add_ids(error, bucket=self.bucket)
        if name.epoch >= opened.epoch:
            return error
        failure = run_alone(classify_failures({name: error}, {name: steps}, context, self.bucket))[name]
        if failure.outage or failure.needs_other_version or (has_progressed and not failure.lost):
            return error
        fold = self._count_failure(failure.reason, for_good=failure.lost, max_attempts=max_attempts)
        if fold.state_of(name.dataset_urn).status is not DatasetStatus.QUARANTINED:
            return error
        todo = (
            f"the dataset is quarantined after {max_attempts} failed replays: correct the cause, then call"
            f" release({opened.store.job!r}, {name.dataset_urn!r}, how) with 'retry', 'accept' or 'abandon'"
        )
        return type(error).rebuilt(error.failure, {**error.fields(), "todo": todo})

    def _record_changes(self, steps: Sequence[CommitStep], failed: dict[SequenceName, DistcommitError]) -> bool:
        executed = {self.name: self.executed}
        progressed = run_alone(record_changed_steps(self.log, self.opened.epoch, executed, {self.name: steps}, failed))
        recorded = self.log.latest().sequence(self.name)
        if progressed and recorded is not None and recorded.steps == dump_steps(steps):
            self.executed = recorded
            for step in steps:
                step.accept_change()
        return bool(progressed)

    def _count_failure(self, reason: str, *, for_good: bool, max_attempts: int) -> Fold:
        fold = run_alone(
            self.log.settle(
                partial(
                    next_log_record.fail,
                    epoch=self.opened.epoch,
                    name=self.name,
                    reason=plain_text(reason),
                    for_good=for_good,
                    max_attempts=max_attempts,
                )
            )
        )
        is_open = fold.sequence(self.name) is not None
        if is_open and fold.state_of(self.name.dataset_urn).status is DatasetStatus.PENDING:
            require_fence(fold, self.opened.epoch, self.log.folder)
        require_not_moved(self.opened.store, fold)
        return fold
