"""Base classes of sinks: where records go, in two phases. Writers prepare, a committer makes visible.

What a writer prepares is named by commit infos: plain data that travels with the task state, is sealed as one
`SinkCommitStep` of its dataset, and comes to `SinkCommitter.commit` as part of a request, as often as it takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from distcommit.model.errors import ConflictError
from distcommit.model.pins import Pin

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """Which attempt at which work unit writes. `attempt` is unique to the call that makes it (a fresh uuid)."""

    run_id: str
    epoch: int
    dataset_urn: str
    work_unit_id: str
    attempt: str


class SinkWriter(ABC):
    """Takes the records of one attempt at one work unit. Not shared between threads.

    Nothing it does is visible to readers of the target. After an error only `abort` is called. An attempt may die at
    any moment without `abort`, and what it has prepared may never be committed: another attempt may win.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Takes records for the dataset."""

    @abstractmethod
    def reject(self, batch: pa.RecordBatch) -> None:
        """Takes records that could not be decoded, in the source's schema (`on_undecodable: divert`)."""

    @abstractmethod
    def prepare_commit(self) -> Sequence[Any]:
        """Ends the attempt: all that a committer in another process needs is durable, or in the staging folder.

        Returns:
            commit infos that name it, none if there is nothing to commit: numbers of at most 64 bits, text, bytes,
            booleans, None, and lists and dicts of them. They are stored in the commit log, so keep them small.
        """

    @abstractmethod
    def abort(self) -> None:
        """Lets go of connections and files after an error; the attempt counts as failed."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """All that one run prepared for one dataset. At most one per dataset and epoch; later runs have higher epochs."""

    dataset_urn: str
    epoch: int
    infos: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """It is visible and durable, by this call."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The target proves that this epoch of the dataset, or a later one, was committed before. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Not all of it is done, and nothing is wrong with it: the same request comes again, in this run or the next."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedForGood:
    """It is not visible and never can be: the dataset is quarantined with the reason, and keeps its watermark."""

    reason: str


CommitOutcome = Committed | AlreadyCommitted | RetryLater | FailedForGood


class SinkCommitter(ABC):
    """Makes visible what writers have prepared. Opened for one call, on an executor.

    Any number of them may work at once, on the same requests too, and may be killed at any point. So the target has to
    keep a proof, changed in one transaction with the data: usually one row for each dataset with its newest epoch.
    """

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Commits the requests of all datasets of a bucket that are ready, durably; one outcome for each, in order.

        Committing a request again changes nothing, after later epochs of its dataset too, and when its staged files are
        gone. An exception counts as `RetryLater` for each request of which it is raised; after one from several
        requests each is tried by itself.
        """

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        """Takes the requests back, durably: nothing of them is visible, and committing them gives `FailedForGood`.

        Called when a person abandons a quarantined dataset; calling again changes nothing more. Later epochs of the
        dataset can be committed as before.

        Raises:
            ConflictError: if one of them can't be taken back, as it is committed; nothing was changed.
        """
        raise ConflictError(
            "this sink can't take back a commit",
            dataset=", ".join(request.dataset_urn for request in requests),
            todo="release the dataset with retry or accept, or give the sink's committer `abort`",
        )

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Tries whether the target works at all, and changes nothing there: reads the ledger, or writes to it on a
        condition that never holds.

        Asked where a commit has failed: if this raises too, it is an outage, told as such and no dataset's failed
        attempt, for however long; else each dataset that failed did so by itself. Without it a sink counts as working
        whose committer can be opened.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Lets go of connections."""


class Sink(ABC):
    """Where records go. Picklable: it is sent to the executors, which write and commit."""

    name: ClassVar[str]
    """Stored with every commit; it stays the same as long as sequences of this sink may be pending."""

    def pins(self) -> Mapping[str, Pin]:
        """Settings that decide where the proof of a commit is, such as a table's name, by their names in the section
        `sink` of the job file. A store is refused with others than it was filled with."""
        return {}

    @abstractmethod
    def open_writer(self, attempt: AttemptIdentity, staging_folder: str) -> SinkWriter:
        """A writer for one attempt at one work unit.

        Args:
            attempt: whose records they are.
            staging_folder: an empty folder of this attempt's own below `paths.staging`, absolute. The writer may put
                files into it, and need not sync them: that is done before the attempt counts. They are deleted once
                the dataset's commit is known to be done, or the attempt to have lost.
        """

    @abstractmethod
    def open_committer(self) -> SinkCommitter:
        """A committer for one batch of requests. An error here is an outage, which no dataset is blamed for."""


def check_plain(value: Any) -> None:
    """Lets plain data through.

    Raises:
        TypeError: if it is, or holds, anything else than what can be a commit info.
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
