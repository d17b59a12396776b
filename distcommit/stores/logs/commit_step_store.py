"""The default CommitStepStore: sequences in commit logs, for programs without a job."""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Sequence
from functools import partial

from distcommit.core.dataset_urn import check_urn, folder_of
from distcommit.core.errors import (
    ConfigurationError,
    ConflictError,
    CorruptError,
    TransientError,
    UnknownVersionError,
)
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.protocol.paths.store import STORE_MARKER
from distcommit.steps.commit_sequence import CommitSequence, CommitStepStore
from distcommit.steps.step_registry import dump_steps, load_steps
from distcommit.steps.watermark_step import as_one_move
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import fence_bucket, fence_job, require_fence
from distcommit.stores.logs.step_store_sequence_end import OpenStore, SequenceEnd
from distcommit.stores.operator import operator_actions
from distcommit.stores.operator.operator_actions import Release
from distcommit.stores.state.job_store import JobStore, Roots, open_store, remove_store

logger = logging.getLogger(__name__)

_WHO = "LogCommitStepStore"


class LogCommitStepStore(CommitStepStore):
    """Commit steps in commit logs below one folder, one sub-folder for each job.

    `create` fences the job, and so does the first operation that changes it: a process that opened the job earlier can
    no longer seal. Steps that are put stay in this process until they are sealed. If several steps of a sequence move
    the watermark (`CommitStep.move`), each for its own partitions, the moves are joined. The joined move is compared
    with the stored watermark at the seal, and takes effect in the record that closes the sequence.

    `commit` quarantines a sequence with a lost step, and a sequence that processes of `max_attempts` epochs failed to
    replay. `get_commit_sequence` returns None for it until it is released. The process that sealed a sequence may retry
    without limit. An outage of the target does not count as a failure.

    A corrupt log of a bucket stops the bucket's own datasets: operations on them raise CorruptError.

    Args:
        fs: file system of all folders.
        folder: folder of the stores.
        context: file system and roots of file steps.
        buckets: number of bucket logs of a new store.
        max_attempts: failed replays of a sequence before it is quarantined, like a job's `replay.max_attempts`.
    """

    def __init__(
        self, fs: FileSystem, folder: str, context: StepContext, buckets: int = 4, max_attempts: int = 3
    ) -> None:
        self._fs, self._folder, self._context, self._buckets = fs, folder, context, buckets
        self._max_attempts = max_attempts
        self._open: dict[str, OpenStore] = {}

    def create(self, store: str, urn: str | None = None) -> bool:
        """Open and fence the job, creating its store if necessary. With `urn`, start a new list of steps.

        Returns:
            whether the store, or with `urn` the list, is new.

        Raises:
            FencedError: if another process fenced the job at that moment.
        """
        if store not in self._open:
            new = not self.exists(store)
            opened = open_store(self._fs, self._roots(store), store, self._buckets if new else None, create=True)
            self._open[store] = self._fence(opened)
            if urn is None:
                return new
        if urn is None or urn in self._open[store].unsealed:
            return False
        self._open[store].unsealed[check_urn(urn)] = []
        return True

    def exists(self, store: str, urn: str | None = None) -> bool:
        if urn is not None:
            return self.exists(store) and self._sequence(store, urn) is not None
        return self._fs.status(f"{self._roots(store).store}/{STORE_MARKER}") is not None

    def remove(self, store: str, urn: str | None = None) -> bool:
        if not self.exists(store):
            return False
        opened = self._opened(store)
        if urn is not None:
            if self._sequence(store, urn) is not None:
                raise _pending_error(store, self._state(store, urn))
            return bool(opened.unsealed.pop(urn, None))
        for bucket in range(opened.store.buckets):
            for state in self._log(opened, bucket).refresh().datasets.values():
                if state.status is not DatasetStatus.IDLE:
                    raise _pending_error(store, state)
        remove_store(self._fs, opened.store.roots.store)
        del self._open[store]
        return True

    def put(self, store: str, urn: str, step: CommitStep) -> bool:
        opened = self._opened(store)
        if self._sequence(store, urn) is not None:
            raise _pending_error(store, self._state(store, urn))
        opened.unsealed.setdefault(check_urn(urn), []).append(step)
        return True

    def seal(self, store: str, urn: str) -> None:
        opened = self._in_unsealed_epoch(self._opened(store), urn)
        steps = opened.unsealed.get(urn, [])
        if self._sequence(store, urn) is not None:
            raise _pending_error(store, self._state(store, urn))
        if not steps:
            raise ConfigurationError(
                "seal was called for a dataset without steps",
                store=store,
                dataset=urn,
                todo="call put for each of its commit steps before seal",
            )
        moves = [step.move for step in steps if step.move is not None]
        log = self._log(opened, opened.store.bucket_of(urn))
        low, high = as_one_move(urn, moves, log.refresh().state_of(urn).watermark)
        sequence = SealedSequence(
            dataset_urn=urn,
            epoch=opened.epoch,
            low=low,
            high=high,
            steps=dump_steps(step for step in steps if step.move is None),
        )
        fold = run_alone(log.settle(partial(next_log_record.seal, epoch=opened.epoch, sequences=(sequence,))))
        state = fold.state_of(urn)
        if state.sequence != sequence and state.done_epoch != opened.epoch:
            raise ConflictError(
                "the sequence cannot be sealed",
                store=store,
                dataset=urn,
                expected=f"epoch {opened.epoch} to be the newest, the dataset idle and not sealed by it, watermark"
                f" {sequence.low}",
                found=f"epoch {fold.fence_epoch}, {state.status.value}, sealed by epoch {state.closed_epoch}, watermark"
                f" {state.watermark}",
                todo="inspect the stored state, then create the store and the plan again",
            )
        del opened.unsealed[urn]

    def get_commit_sequence(self, store: str, urn: str) -> CommitSequence | None:
        state = self._state(store, urn)
        if state.open is None or state.open.held or state.status is not DatasetStatus.PENDING:
            return None
        sequence = state.open.sequence
        opened = self._opened(store)
        log = self._log(opened, opened.store.bucket_of(urn))
        run_alone(log.make_durable())
        end = SequenceEnd(opened, log, sequence)
        try:
            steps = tuple(load_steps(sequence.steps, self._context))
        except UnknownVersionError:
            raise
        except CorruptError as error:
            end.quarantine(str(error))
            raise
        return CommitSequence(
            urn, steps, end.close, end.lose, partial(end.fail, steps, self._context, self._max_attempts)
        )

    def release(self, store: str, urn: str, how: str, user: str = "") -> None:
        """Release a quarantined dataset, and record the release.

        Args:
            store: the job.
            urn: the dataset.
            how: "retry": the sequence can be committed again. "accept": the sequence counts as done, and the watermark
                moves. "abandon": the sequence is undone, and the watermark stays. "restart": the sequence is undone,
                and the watermark is deleted.
            user: the operator, for the record.

        Raises:
            ConflictError: if the dataset is neither quarantined nor (except for "retry") being abandoned, or if the
                sequence cannot be abandoned. The dataset stays quarantined.
            TransientError: if the sequence is accepted, and data prepared at a target could not be rolled back.
            DistcommitError: if a step cannot be undone now. Calling again resumes.
        """
        if how not in [*Release]:
            raise ConfigurationError(
                "how to release is unknown", id="ARGUMENT_INVALID", expected=", ".join(Release), found=how
            )
        in_doubt = operator_actions.release(
            self._opened(store).store, urn, Release(how), user or _WHO, self._context.committers
        )
        if in_doubt:
            raise _in_doubt_error(store, urn, in_doubt)

    def quarantine(self, store: str, urn: str, user: str = "") -> None:
        """Quarantine a pending sequence that can never be committed, until an operator releases it.

        Raises:
            ConflictError: if the dataset is not pending.
        """
        operator_actions.quarantine(self._opened(store).store, urn, user or _WHO)

    def watermark(self, store: str, urn: str) -> Watermark | None:
        """Return the watermark, which moves when a sequence is closed; reads only."""
        return self._state(store, urn).watermark

    def _in_unsealed_epoch(self, opened: OpenStore, urn: str) -> OpenStore:
        """Return the store in an epoch that has not sealed the dataset.

        An unfenced process takes a new epoch for each further sequence.
        """
        fold = self._log(opened, opened.store.bucket_of(urn)).refresh()
        if fold.state_of(urn).closed_epoch < opened.epoch or fold.state_of(urn).sequence is not None:
            return opened
        job_log = opened.store.job_log(opened.epoch)
        require_fence(job_log.refresh(), opened.epoch, job_log.folder)
        refenced = self._fence(opened.store)
        opened.run_id, opened.epoch = refenced.run_id, refenced.epoch
        opened.logs, opened.unfenced = refenced.logs, refenced.unfenced
        return opened

    def _fence(self, store: JobStore) -> OpenStore:
        run_id = uuid.uuid4().hex
        opened = OpenStore(store, run_id, fence_job(store, run_id))
        for bucket in range(store.buckets):
            log = opened.logs[bucket] = store.bucket_log(bucket, opened.epoch)
            try:
                run_alone(fence_bucket(log, opened.epoch, run_id))
            except CorruptError as error:
                logger.warning("a bucket cannot be fenced: %s", error, extra={"job": store.job, "bucket": bucket})
                opened.unfenced.add(bucket)
        return opened

    def _sequence(self, store: str, urn: str) -> SealedSequence | None:
        return self._state(store, urn).sequence

    def _state(self, store: str, urn: str) -> DatasetState:
        opened = self._open.get(store)
        if opened is not None:
            fold = self._log(opened, opened.store.bucket_of(urn)).refresh()
            if not fold.moved_to:  # else it continues in another generation
                return fold.state_of(urn)
        job_store = open_store(self._fs, self._roots(store), store, create=False)
        return job_store.bucket_log(job_store.bucket_of(urn)).refresh().state_of(urn)

    def _opened(self, store: str) -> OpenStore:
        if store not in self._open:
            if not self.exists(store):
                raise ConfigurationError(
                    "the commit step store does not exist", id="STORE_NOT_FOUND", store=store, todo="create it first"
                )
            self.create(store)
        return self._open[store]

    def _log(self, opened: OpenStore, bucket: int) -> CommitLog:
        if bucket not in opened.logs:
            opened.logs[bucket] = opened.store.bucket_log(bucket, opened.epoch)
        if bucket in opened.unfenced:  # its log was corrupt; once restored it must be fenced before use
            run_alone(fence_bucket(opened.logs[bucket], opened.epoch, opened.run_id))
            opened.unfenced.remove(bucket)
        return opened.logs[bucket]

    def _roots(self, store: str) -> Roots:
        folder = posixpath.join(self._folder, folder_of(check_urn(store)))
        return Roots(folder, self._context.staging_root, self._context.output_root)


def _in_doubt_error(store: str, urn: str, steps: Sequence[CommitStep]) -> TransientError:
    attempts = dict.fromkeys(attempt for step in steps for attempt in step.prepared_by)
    return TransientError(
        "the dataset is released, but data prepared for it at a target could not be rolled back",
        id="ROLLBACK_UNFINISHED",
        store=store,
        dataset=urn,
        expected="a target that can roll it back now",
        found=", ".join(map(repr, steps)),
        todo=f"roll back at the target what these attempts have prepared: {', '.join(attempts)}",
    )


def _pending_error(store: str, state: DatasetState) -> ConflictError:
    urn, names = state.dataset_urn, f"{store!r}, {state.dataset_urn!r}"
    pending = state.status is DatasetStatus.PENDING
    choices = (
        "'retry', 'accept' or 'abandon'"
        if state.status is DatasetStatus.QUARANTINED
        else "'abandon', which resumes, or 'accept'"
    )
    return ConflictError(
        f"the dataset has a sealed sequence that is {state.status.value}",
        id="SEQUENCE_OPEN",
        store=store,
        dataset=urn,
        expected="a dataset without an open sequence",
        found=state.reason,
        todo=f"call get_commit_sequence({names}).commit(); if it cannot succeed, call quarantine({names}) and release"
        if pending
        else f"call release({names}, how) with {choices}",
    )
