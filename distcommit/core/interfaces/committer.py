"""Committers, which publish the output of a sink's writers together with its proof, in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink_metrics import SinkMetrics
from distcommit.core.work_units import MAIN_BRANCH, BranchResult


@dataclass(frozen=True, slots=True)
class SealRequest:
    """The output of the winning attempts of one run for a branch of a dataset. There is one request per dataset, branch
    and epoch.

    Attributes:
        dataset_urn: the dataset.
        epoch: the run's epoch, which rises with each run.
        branch: the branch.
        results: the output of each attempt, in the order of the work units.
        is_complete: for each attempt, whether each staged folder can be renamed as a whole: it has exactly the files of
            this branch, with their final names, for one folder of the output.
        bases: the epochs that the store expects in the target's ledger before this commit; see `CommitRequest`.
        attempts: the ids of the attempts, in the order of the results.
    """

    dataset_urn: str
    epoch: int
    branch: str
    results: Sequence[BranchResult]
    is_complete: Sequence[bool]
    bases: tuple[int, ...] = ()
    attempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The output that one run prepared for a branch of one dataset. There is at most one request per dataset, branch
    and epoch.

    Attributes:
        dataset_urn: the dataset.
        epoch: the run's epoch, which rises with each run.
        infos: the commit infos of the winning attempts, in the version of the current sink; or the recorded infos of
            the newest `RetryLater`.
        branch: the branch.
        bases: the epochs that the store expects in the target's ledger before this commit (0: no row); empty if the
            store does not know. Another epoch below this request's epoch proves that the target was exchanged or
            restored.
        infos_version: the version of the infos.
        attempts: the ids that the writers of the attempts received; empty if they are not known.
    """

    dataset_urn: str
    epoch: int
    infos: tuple[Any, ...]
    branch: str = MAIN_BRANCH
    bases: tuple[int, ...] = ()
    infos_version: int = 1
    attempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortedAttempt:
    """An attempt whose output was not chosen and never can be.

    Attributes:
        epoch: the run's epoch.
        work_unit_id: the work unit; empty if the sequence was abandoned.
        attempt: the attempt's id, which its writers received.
        folder: the folder of the attempt's staged files, relative to the staging root. The files are deleted after
            `abort` and may be gone already; for an abandoned sequence they are gone.
        infos: the known commit infos of the attempt's writers for this sink, perhaps of an older version; none if the
            attempt died.
    """

    epoch: int
    work_unit_id: str
    attempt: str
    folder: str
    infos: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """The environment of a committer.

    Attributes:
        fs: the file system of the job's folders.
        staging_root: the folder that staged paths are relative to: `StagingArea.prefix` and the file's name.
        output_root: the job's `paths.output`.
        store_id: the id of the job's store. A ledger has separate rows for each store, because jobs may share a target.
        metrics: counters of the sink that the committer increases.
    """

    fs: FileSystem
    staging_root: str
    output_root: str
    store_id: str
    metrics: SinkMetrics = field(default_factory=SinkMetrics, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Committed:
    """Outcome: this call made the request visible and durable."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """Outcome: the target proves that this epoch of the dataset, or a later one, was committed before. Nothing
    changed."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Outcome: the commit is incomplete but can succeed. This run or the next repeats the request.

    Changed infos are recorded durably before the request is repeated. Every later call of `commit`, `withdraw` and
    `allow` then receives them, also by the next run or an operator. `abort` receives either them or the writers' infos.
    If two processes change the infos of one request, the first recorded change counts. A process of a fenced run
    changes nothing. A replay that records a change does not count towards `replay.max_attempts`.

    Before the change is recorded, a process may die or an operator may quarantine the dataset. Afterwards, an older
    process may continue. So each of these calls must also accept the infos before any change, after any partial
    success: `commit` publishes each record once, and `withdraw` rolls back every part.

    A change is not recorded if it is not plain data, is the 101st of the dataset's commit, or makes the infos of all
    branches of the dataset larger than 1 MiB and than before. The error is `COMMIT_INFOS_REJECTED`, and the request is
    repeated with its last recorded infos. With at-least-once delivery no request is stored, so changed infos are
    ignored.

    Attributes:
        reason: why the commit is incomplete.
        infos: the request's infos for the repeated call, in the sink's current version; None if they are unchanged.
    """

    reason: str
    infos: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class FailedForGood:
    """Outcome: the request is not visible and never can be. The dataset is quarantined and keeps its watermark.

    Attributes:
        reason: the reason of the quarantine.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Outcome: the request was not committed, because another request of its atomic commit cannot be committed.

    Attributes:
        dataset_urn: the dataset of the other request.
    """

    dataset_urn: str


CommitOutcome = Committed | AlreadyCommitted | RetryLater | FailedForGood | HeldBack


class SinkCommitter(ABC):
    """The part of a sink that publishes the output of writers. It is opened on an executor for one call.

    Any number of committers may work concurrently, also on the same requests, and may be killed at any point. Therefore
    the target must keep a proof of each commit, which changes in one transaction with the data: usually one row for
    each dataset, with its newest epoch.

    Attributes:
        retry_count: the number of retries inside the committer.
    """

    retry_count: int = 0

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Commit the requests of all ready datasets of a bucket, durably. Return one outcome for each request, in
        order.

        Repeating a committed request must change nothing: also after later epochs of its dataset, after its staged
        files are gone, and with the infos from before a `RetryLater` changed them. An exception counts as `RetryLater`
        for all requests, and each of several requests is then repeated alone.
        """

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Commit, in one commit of the target, all requests that are not committed yet, or none of them.

        Called for a commit group of a run that publishes its whole job or nothing, and only if the sink names commit
        groups. If a request cannot be committed, its outcome is the one that `commit` returns, and the others are
        `HeldBack`. The default calls `commit`, which may commit a part of the requests.
        """
        return self.commit(requests)

    def withdraw(self, requests: Sequence[CommitRequest]) -> bool | None:
        """Roll the requests back durably: readers see nothing of them, and committing them later returns
        `FailedForGood`.

        Called when an operator abandons a quarantined dataset, before `abort`. Idempotent. Later epochs of the dataset
        can be committed as before.

        Returns:
            True or None for success; any other value is a failure.

        Raises:
            ConflictError: if a request is committed and cannot be rolled back; nothing changed.
        """
        raise ConflictError(
            "this sink cannot roll back a commit",
            id="ROLLBACK_NOT_SUPPORTED",
            dataset=", ".join(request.dataset_urn for request in requests),
            todo="release the dataset with retry or accept, or implement `withdraw` in the sink's committer",
        )

    def allow(self, requests: Sequence[CommitRequest]) -> bool | None:
        """Allow requests to be committed again after `withdraw`, durably. This call commits nothing.

        Called when another target of the dataset could not be rolled back. Idempotent. Returns like `withdraw`.

        Raises:
            NotImplementedError: the default. The dataset then stays in status REVOKING.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot allow a commit again that it has rolled back")

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> bool | None:
        """Delete the remains of aborted attempts at the target, durably: prepared transactions, uploads, files in a
        table's folder. Called for sinks with `prepares_at_target`.

        The run that learns of aborted attempts calls it, once this is durable:

        - attempts that failed, died or lost to another attempt: once another attempt's commit is done, or a newer run
          has fenced the bucket;
        - attempts of a sequence that was dropped, abandoned or accepted: once the log has recorded the decision.

        So no later request contains these attempts. As far as the store knows, none of their output is committed. If
        the store was restored from a copy, the target may have committed some of their output: keep data that the
        target's readers need.

        Idempotent, also with a part of the attempts and after a crash. An attempt that died has no infos and may have
        left anything that a writer creates, so writers must name objects at the target by the attempt's id. After an
        error the next run repeats the call. Returns like `withdraw`.
        """
        return None

    def ledger(self) -> Iterator[LedgerRow]:
        """Yield all ledger rows of this store, in any order, for the audit and `rebuild`. For sinks with
        `abilities.audit`.

        If some rows cannot be read, the readable ones may come before the error.
        """
        raise NotImplementedError(f"{type(self).__name__} has no ledger to read")

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        """Return the number of rows of a dataset and branch that the target's readers see, counted there.

        Used by the deep audit. Returns None if the target cannot distinguish these rows from others.
        """
        return None

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Check that the target works, without changing data: read the ledger, or write to it on an impossible
        condition.

        Called after a failed commit. If this call raises too, the failure is an outage and does not count as a failed
        attempt of a dataset. If this call succeeds, each failed dataset is at fault. The default checks only that a
        committer can be opened.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Close connections. Called after an error, and by the default of `release`."""

    def release(self) -> None:
        """End the committer, in place of `close`, if none of its calls has raised an error.

        It may keep connections open for committers that this process opens later. The default calls `close`.
        """
        self.close()


Committer = TypeVar("Committer", bound=SinkCommitter)


@contextmanager
def releasing(committer: Committer) -> Iterator[Committer]:
    """Release the committer after the block. If the block raises an exception, close it."""
    try:
        yield committer
    except BaseException:
        committer.close()
        raise
    committer.release()


class OpensCommitter(Protocol):
    """The part of a sink that commit steps use."""

    @property
    def name(self) -> str:
        """Return the name that is stored with every commit. It must not change while sequences of this sink may be
        pending."""
        ...

    @property
    def prepares_at_target(self) -> bool:
        """Return whether writers leave anything but staged files at the target before the commit."""
        ...

    @property
    def leaves_in_doubt(self) -> bool:
        """Return whether writers leave prepared transactions, which cannot be committed after `abort` has removed
        them.
        """
        ...

    @property
    def infos_version(self) -> int:
        """Return the version of the commit infos that writers create. It is stored with every commit."""
        ...

    def upgraded(self, info: Any, version: int) -> Any:
        """Return a commit info of an older version in the current version. An error leaves the commit pending."""
        ...

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        """Open a committer for one batch of requests. An error counts as an outage, not as a failed attempt of a
        dataset.
        """
        ...


def check_plain(value: Any) -> None:
    """Check that a value is plain data, as a commit info must be.

    Raises:
        TypeError: if the value is, or contains, anything else than integers from -2^63 to 2^64 - 1, floats, text,
            bytes, booleans, None, lists, and dicts with text keys.
    """
    match value:
        case None | bool() | float() | str() | bytes():
            return
        case int() if -(2**63) <= value < 2**64:
            return
        case list():
            for item in value:
                check_plain(item)
            return
        case dict() if all(isinstance(key, str) for key in value):
            for item in value.values():
                check_plain(item)
            return
    raise TypeError(f"not plain data: {value!r:.200}")
