"""The sink under test, and the operations that the contract's tests use."""

from __future__ import annotations

import inspect
import os
import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import AbortedAttempt, CommitOutcome, CommitRequest, SinkCommitter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.step_registry import dump_steps, load_steps

_STORE = "store"
_NO_ORIGIN = Origin()


class SinkUnderTest(ABC):
    """Base of the sink suites. Each operation acts as another process."""

    preloaded: ClassVar[Sequence[str]] = ()
    """Slow modules that committers import, so that killed processes need not import them each time."""

    committer_bases: ClassVar[Sequence[str]] = ()
    """Files of the committer's base classes. The committer is also killed before lines of these files."""

    branches_share_a_target: ClassVar[bool] = True
    """Whether two branches of a dataset may write to one target."""

    @abstractmethod
    def make_sink(self, folder: Path) -> CommitterSink:
        """Return the sink. Each `folder` must get a separate target."""

    @abstractmethod
    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        """Return dataset and offset of each visible record at the target, with repetitions, in any order; empty if the
        target does not exist or exists in part."""

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        """Make it impossible to commit the prepared output, for example by deleting staged files. Return False if the
        sink has no such failure; tests of the failure then do not apply.
        """
        return False

    def cut_off(self, folder: Path) -> bool:
        """Make the target unusable for the rest of the test, as in an outage. Return False if that is impossible; tests
        of outages then do not apply.
        """
        return False

    def commit_in_part(self, folder: Path, request: CommitRequest) -> bool:
        """Make the next commits of the request succeed in part, so that the committer returns `RetryLater` with changed
        infos. Return False if the sink never changes infos; tests of changed infos then do not apply.
        """
        return False

    def in_doubt(self, place: Path) -> int:
        """Return the number of objects at the target, counted there, that are neither committed nor aborted: prepared
        transactions, data files of no table. For a sink with `prepares_at_target`; must be above 0 after an attempt
        that lost."""
        raise NotImplementedError(f"{type(self).__name__} must count the objects that its sink's `abort` removes")

    def report_not_applicable(self, reason: str) -> None:  # noqa: B027 - optional hook
        """Receive the reason why a test does not apply to the sink."""

    # -- helpers

    def sink(self, folder: Path) -> CommitterSink:
        """Return the sink as an executor receives it, after pickling."""
        sent: CommitterSink = pickle.loads(pickle.dumps(self.make_sink(folder)))
        return sent

    def context(self, folder: Path) -> StepContext:
        return StepContext(
            LocalFileSystem(),
            str(folder / "staging"),
            str(folder / "output"),
            self.make_sink(folder).committers,
            store_id=_STORE,
        )

    def committers_file(self, folder: Path) -> str:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        committer.close()
        return inspect.getsourcefile(type(committer)) or ""

    def committers_folders(self, location: Path) -> list[str]:
        """Return the folder of the committer's module, and all folders below."""
        return [folder for folder, *_ in os.walk(os.path.dirname(self.committers_file(location)))]

    def writer(
        self,
        location: Path,
        urn: str,
        epoch: int,
        attempt: str = "",
        *,
        origin: Origin = _NO_ORIGIN,
        branch: str = MAIN_BRANCH,
    ) -> SinkWriter:
        attempt = attempt or uuid.uuid4().hex
        folder = location / "staging" / attempt
        folder.mkdir(parents=True)
        identity = AttemptIdentity(f"run-{epoch}", epoch, urn, f"00000_{epoch:06d}", attempt, branch, store_id=_STORE)
        area = StagingArea(LocalFileSystem(), str(folder), attempt, str(location / "output"))
        return self.sink(location).open_writer(identity, area, origin)

    def lost(self, folder: Path, urn: str, epoch: int, *, died: bool) -> AbortedAttempt:
        """Return an aborted attempt that has prepared a record. If it died, its infos are unknown."""
        attempt = uuid.uuid4().hex
        writer = self.writer(folder, urn, epoch, attempt)
        writer.write(batch_of(0))
        infos = tuple(writer.prepare_commit().infos)
        return AbortedAttempt(epoch, f"00000_{epoch:06d}", attempt, attempt, () if died else infos)

    def prepare(
        self,
        folder: Path,
        urn: str,
        epoch: int,
        *work_units: Sequence[int],
        bases: tuple[int, ...] = (),
        branch: str = MAIN_BRANCH,
    ) -> CommitRequest:
        """Prepare one attempt at each of these work units, given by their offsets. Return the commit request, as a
        committer reads it from the store.

        `bases` are the epochs that the store expects at the target.
        """
        infos: list[Any] = []
        attempts = [uuid.uuid4().hex for _ in work_units]
        for offsets, attempt in zip(work_units, attempts, strict=True):
            writer = self.writer(folder, urn, epoch, attempt, branch=branch)
            for offset in offsets:
                writer.write(batch_of(offset))
            infos += writer.prepare_commit().infos
        request = CommitRequest(urn, epoch, tuple(infos), branch, bases=bases, attempts=tuple(attempts))
        return self.stored(folder, request)

    def stored(self, folder: Path, request: CommitRequest) -> CommitRequest:
        """Return the request as another process reads it from the commit log."""
        sink = self.sink(folder)
        context = self.context(folder)
        (step,) = load_steps(dump_steps([SinkCommitStep(sink, request, context.for_committers)]), context)
        assert isinstance(step, SinkCommitStep)
        return step.request

    def commit(self, folder: Path, *requests: CommitRequest) -> list[CommitOutcome]:
        return self._committed(folder, requests, SinkCommitter.commit.__name__)

    def commit_atomically(self, folder: Path, *requests: CommitRequest) -> list[CommitOutcome]:
        return self._committed(folder, requests, SinkCommitter.commit_atomically.__name__)

    def _committed(self, folder: Path, requests: Sequence[CommitRequest], how: str) -> list[CommitOutcome]:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        try:
            outcomes = list(getattr(committer, how)(list(requests)))
        finally:
            committer.close()
        assert len(outcomes) == len(requests), "one outcome for each request"
        return outcomes

    def withdraw(self, folder: Path, *requests: CommitRequest) -> None:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        try:
            committer.withdraw(list(requests))
        finally:
            committer.close()

    def abandon(self, folder: Path, *requests: CommitRequest) -> None:
        """Roll the requests back for good and abort their attempts."""
        self.withdraw(folder, *requests)
        for request in requests:
            SinkCommitStep(self.sink(folder), request, self.context(folder).for_committers).undo()

    def allow(self, folder: Path, *requests: CommitRequest) -> None:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        try:
            committer.allow(list(requests))
        finally:
            committer.close()

    def abort(self, folder: Path, *aborted_attempts: AbortedAttempt) -> None:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        try:
            committer.abort(list(aborted_attempts))
        finally:
            committer.close()

    def probe(self, folder: Path) -> None:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        try:
            committer.probe()
        finally:
            committer.close()

    def ledger(self, folder: Path) -> dict[str, tuple[int, int]]:
        """Return the newest committed epoch and the number of rows of each dataset."""
        return {
            row.dataset_urn: (row.epoch, sum(part.rows for part in row.covered)) for row in self.ledger_rows(folder)
        }

    def ledger_rows(self, folder: Path) -> list[LedgerRow]:
        committer = self.sink(folder).open_committer(self.context(folder).for_committers)
        try:
            return [*committer.ledger()]
        finally:
            committer.close()

    def visible_records(self, folder: Path) -> list[tuple[str, int]]:
        """Return the visible records, sorted."""
        return sorted((urn, int(offset)) for urn, offset in self.observe(folder))


def batch_of(offset: int) -> pa.RecordBatch:
    return pa.record_batch([["0"], [offset], [f"record {offset}"]], names=["partition", "offset", "value"])
