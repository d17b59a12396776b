"""Committers: what makes visible what a sink's writers have prepared, in the same transaction as its proof."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.ports import FileSystem
from distcommit.core.work import MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """All that one run prepared for a branch of one dataset. At most one per dataset, branch and epoch; later runs have
    higher epochs.

    `bases`: the epochs that the target's ledger may have for this dataset and branch before it (0: no row), as the
    store knows it; empty if the store does not. A target with another epoch below this one is not the target that the
    store knows. `infos_version`: the version of the infos; a committer is given those of the sink's own version.
    `attempts`: whose infos they are, by the id that their writers were opened with; empty if nobody knows.
    """

    dataset_urn: str
    epoch: int
    infos: tuple[Any, ...]
    branch: str = MAIN_BRANCH
    bases: tuple[int, ...] = ()
    infos_version: int = 1
    attempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt at a work unit that was not chosen and never can be.

    Attributes:
        epoch: its run's.
        work_unit_id: what it was at; empty where its sequence was abandoned.
        attempt: its id, as its writers were opened with.
        folder: of its staged files, relative to the staging root. They are deleted afterwards, and may be gone already:
            they are where its sequence was abandoned.
        infos: what its writers for this sink have prepared, as far as that is known: nothing of an attempt that died.
            An older version of the sink may have written them.
    """

    epoch: int
    work_unit_id: str
    attempt: str
    folder: str
    infos: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """What a committer is opened with.

    Attributes:
        fs: the file system of the job's folders.
        staging_root: what paths of staged files are relative to: `StagingArea.prefix` and a name below it.
        output_root: the job's `paths.output`.
        store_id: the id of the job's store. A ledger has rows of its own for each store: several jobs may share a
            target.
    """

    fs: FileSystem
    staging_root: str
    output_root: str
    store_id: str


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


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Nothing is wrong with it: another request of those that are committed all or none can't be. `dataset_urn`: of
    which dataset that one is."""

    dataset_urn: str


CommitOutcome = Committed | AlreadyCommitted | RetryLater | FailedForGood | HeldBack


class SinkCommitter(ABC):
    """Makes visible what writers have prepared. Opened for one call, on an executor.

    Any number of them may work at once, on the same requests too, and may be killed at any point. So the target has to
    keep a proof, changed in one transaction with the data: usually one row for each dataset with its newest epoch.

    Attributes:
        tried_again: how often it has tried again by itself, in place of leaving requests to another call.
    """

    tried_again: int = 0

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Commits the requests of all datasets of a bucket that are ready, durably; one outcome for each, in order.

        Committing a request again changes nothing, after later epochs of its dataset too, and when its staged files are
        gone. An exception counts as `RetryLater` for each request of which it is raised; after one from several
        requests each is tried by itself.
        """

    def commit_whole(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Commits, in one commit of the target, all of these that are not committed yet, or none of them: what a run
        that publishes its whole job or nothing has of a commit group. Where one of them can't be, it is answered as by
        `commit`, and the others are `HeldBack`.

        Asked only of sinks that name commit groups. The default is `commit`, which does not hold the others.
        """
        return self.commit(requests)

    def abort(self, requests: Sequence[CommitRequest]) -> bool | None:
        """Takes the requests back, durably: nothing of them is visible, and committing them gives `FailedForGood`.
        Returns True or None if it has; any other value is a failure.

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

    def allow(self, requests: Sequence[CommitRequest]) -> bool | None:
        """Lets these be committed again, though `abort` was called for them, durably: another target of their dataset
        has refused to take them back. Nothing is committed by it. Calling again changes nothing more. Returns as
        `abort`.

        Raises:
            NotImplementedError: the default. The dataset then stays as it is being abandoned.
        """
        raise NotImplementedError(f"{type(self).__name__} can't let be committed again what it has taken back")

    def discard(self, lost: Sequence[LostAttempt]) -> bool | None:
        """Takes away what attempts that lost have left at the target, durably: prepared transactions, uploads, files in
        a table's folder. For sinks with `discards`.

        Called only of what no request names or ever will, or one that was aborted for good; as far as the store knows,
        nothing of it is committed. If that was put back from a copy, the target may have committed some of it since:
        what readers of the target need stays. Calling again changes nothing more, also with some of them only, and
        after a crash half-way. A writer that died may have left anything of what it does, and no infos: what it makes
        at the target it names by its attempt's id. An error leaves all of it to the next run. Returns as `abort`.
        """
        return None

    def ledger(self) -> Iterator[LedgerRow]:
        """All rows that the target has for this store, in any order: what the audit and `rebuild` go by. For sinks
        whose `abilities.audit` says so. Where some can't be read, the others may come first, and then the error."""
        raise NotImplementedError(f"{type(self).__name__} tells nothing of what it has committed")

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        """How many rows of a dataset and branch readers of the target see, counted there and not by the ledger; None if
        the target can't tell them from others. Asked by the deep audit."""
        return None

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Tries whether the target works at all, and changes nothing there: reads the ledger, or writes to it on a
        condition that never holds.

        Asked where a commit has failed: if this raises too, it is an outage, told as such and no dataset's failed
        attempt, for however long; else each dataset that failed did so by itself. Without it a sink counts as working
        whose committer can be opened.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Lets go of connections."""


class OpensCommitter(Protocol):
    """A sink as commit steps know it."""

    @property
    def name(self) -> str:
        """Stored with every commit; it stays the same as long as sequences of this sink may be pending."""
        ...

    @property
    def discards(self) -> bool:
        """Whether its writers leave anything at the target before it is committed, but staged files."""
        ...

    @property
    def leaves_in_doubt(self) -> bool:
        """Whether that waits there to be committed by its name, and can't be any more once `discard` has taken it away,
        whoever is about to: prepared transactions."""
        ...

    @property
    def infos_version(self) -> int:
        """The version of the commit infos that its writers make, stored with every commit."""
        ...

    def upgraded(self, info: Any, version: int) -> Any:
        """A commit info of an older version, as its writers would make it now. An error leaves the commit pending."""
        ...

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        """A committer for one batch of requests. An error here is an outage, which no dataset is blamed for."""
        ...


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
