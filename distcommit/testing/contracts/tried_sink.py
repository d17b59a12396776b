"""A sink that is held against its contract, and what the contract's tests do with it again and again."""

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

from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, LostAttempt, SinkCommitter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.steps.registry import dump_steps, load_steps
from distcommit.steps.sink import SinkCommitStep

_STORE = "store"
_NO_ORIGIN = Origin()


class TriedSink(ABC):
    """What a subclass of the contract gives, and how it is used: each call as one more process makes it."""

    preloaded: ClassVar[Sequence[str]] = ()
    """Modules that committers import when they are used: those that take long, as each killed process imports them."""

    committer_bases: ClassVar[Sequence[str]] = ()
    """Files of base classes of the committer, before whose lines it is killed as well."""

    branches_share_a_target: ClassVar[bool] = True
    """Whether two branches of a dataset may go to one target."""

    @abstractmethod
    def make_sink(self, place: Path) -> CommitterSink:
        """The sink, with a target of its own for each place."""

    @abstractmethod
    def observe(self, place: Path) -> Sequence[tuple[str, int]]:
        """Dataset and offset of each record that is visible at the target, as often as it is there, in any order: of
        none where the target is not made yet, or by half."""

    def lose(self, place: Path, request: CommitRequest) -> bool:
        """Makes it impossible to commit what was prepared; False if nothing can."""
        return False

    def cut_off(self, place: Path) -> bool:
        """Makes the target unusable, as an outage does; False if nothing can. It is not mended."""
        return False

    def in_doubt(self, place: Path) -> int:
        """How many things are at the target, counted there, that neither are committed nor have gone: prepared
        transactions, data files of no table. Asked of a sink with `discards`, and more than 0 where an attempt has
        lost."""
        raise NotImplementedError(f"{type(self).__name__} does not count what its sink's `discard` takes away")

    def passes_over(self, why: str) -> None:  # noqa: B027 - for those who tell it
        """Told by a test that it has nothing to try with the sink."""

    # -- what the tests are made of

    def sink(self, place: Path) -> CommitterSink:
        """The sink as an executor gets it: it has travelled."""
        made: CommitterSink = pickle.loads(pickle.dumps(self.make_sink(place)))
        return made

    def context(self, place: Path) -> StepContext:
        """What steps and committers are opened with."""
        return StepContext(
            LocalFileSystem(),
            str(place / "staging"),
            str(place / "output"),
            self.make_sink(place).committers,
            store_id=_STORE,
        )

    def committers_file(self, place: Path) -> str:
        """The file that its class of committers is in."""
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        committer.close()
        return inspect.getsourcefile(type(committer)) or ""

    def committers_folders(self, place: Path) -> list[str]:
        """Return the folder of that file, and the folders in it."""
        return [folder for folder, *_ in os.walk(os.path.dirname(self.committers_file(place)))]

    def writer(
        self,
        place: Path,
        urn: str,
        epoch: int,
        attempt: str = "",
        *,
        origin: Origin = _NO_ORIGIN,
        branch: str = MAIN_BRANCH,
    ) -> SinkWriter:
        """The writer of a new attempt; `attempt`: its id."""
        attempt = attempt or uuid.uuid4().hex
        folder = place / "staging" / attempt
        folder.mkdir(parents=True)
        identity = AttemptIdentity(f"run-{epoch}", epoch, urn, f"00000_{epoch:06d}", attempt, branch, store_id=_STORE)
        area = StagingArea(LocalFileSystem(), str(folder), attempt, str(place / "output"))
        return self.sink(place).open_writer(identity, area, origin)

    def lost(self, place: Path, urn: str, epoch: int, *, died: bool) -> LostAttempt:
        """An attempt that has prepared a record and was not chosen. If it died, nobody knows its infos."""
        attempt = uuid.uuid4().hex
        writer = self.writer(place, urn, epoch, attempt)
        writer.write(batch_of(0))
        infos = tuple(writer.prepare_commit().infos)
        return LostAttempt(epoch, f"00000_{epoch:06d}", attempt, attempt, () if died else infos)

    def prepare(
        self,
        place: Path,
        urn: str,
        epoch: int,
        *work_units: Sequence[int],
        bases: tuple[int, ...] = (),
        branch: str = MAIN_BRANCH,
    ) -> CommitRequest:
        """What one attempt at each of these work units (offsets) has prepared, as a committer finds it in the store,
        which knows the target to have one of these epochs."""
        infos: list[Any] = []
        attempts = [uuid.uuid4().hex for _ in work_units]
        for offsets, attempt in zip(work_units, attempts, strict=True):
            writer = self.writer(place, urn, epoch, attempt, branch=branch)
            for offset in offsets:
                writer.write(batch_of(offset))
            infos += writer.prepare_commit().infos
        request = CommitRequest(urn, epoch, tuple(infos), branch, bases=bases, attempts=tuple(attempts))
        return self.stored(place, request)

    def stored(self, place: Path, request: CommitRequest) -> CommitRequest:
        """The request as another process reads it from the commit log."""
        sink = self.sink(place)
        context = self.context(place)
        (step,) = load_steps(dump_steps([SinkCommitStep(sink, request, context.for_committers)]), context)
        assert isinstance(step, SinkCommitStep)
        return step.request

    def commit(self, place: Path, *requests: CommitRequest) -> list[CommitOutcome]:
        """Commits as one more process does."""
        return self._committed(place, requests, SinkCommitter.commit.__name__)

    def commit_whole(self, place: Path, *requests: CommitRequest) -> list[CommitOutcome]:
        """The same, all or none."""
        return self._committed(place, requests, SinkCommitter.commit_whole.__name__)

    def _committed(self, place: Path, requests: Sequence[CommitRequest], how: str) -> list[CommitOutcome]:
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        try:
            outcomes = list(getattr(committer, how)(list(requests)))
        finally:
            committer.close()
        assert len(outcomes) == len(requests), "one outcome for each request"
        return outcomes

    def withdraw(self, place: Path, *requests: CommitRequest) -> None:
        """Takes back as one more process does."""
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        try:
            committer.abort(list(requests))
        finally:
            committer.close()

    def abandon(self, place: Path, *requests: CommitRequest) -> None:
        """Takes back for good, with what was prepared, as one more process does."""
        self.withdraw(place, *requests)
        for request in requests:
            SinkCommitStep(self.sink(place), request, self.context(place).for_committers).undo()

    def allow(self, place: Path, *requests: CommitRequest) -> None:
        """Allows again as one more process does."""
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        try:
            committer.allow(list(requests))
        finally:
            committer.close()

    def discard(self, place: Path, *lost: LostAttempt) -> None:
        """Takes away what lost as one more process does."""
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        try:
            committer.discard(list(lost))
        finally:
            committer.close()

    def probe(self, place: Path) -> None:
        """Asks whether the target works, as one more process does."""
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        try:
            committer.probe()
        finally:
            committer.close()

    def ledger(self, place: Path) -> dict[str, tuple[int, int]]:
        """The newest epoch that is committed of each dataset, and how many rows, as one more process is told."""
        return {row.dataset_urn: (row.epoch, sum(part.rows for part in row.covered)) for row in self.ledger_rows(place)}

    def ledger_rows(self, place: Path) -> list[LedgerRow]:
        """All of them, as one more process is told."""
        committer = self.sink(place).open_committer(self.context(place).for_committers)
        try:
            return [*committer.ledger()]
        finally:
            committer.close()

    def seen(self, place: Path) -> list[tuple[str, int]]:
        """What is visible, in order."""
        return sorted((urn, int(offset)) for urn, offset in self.observe(place))


def batch_of(offset: int) -> pa.RecordBatch:
    return pa.record_batch([["0"], [offset], [f"record {offset}"]], names=["partition", "offset", "value"])
