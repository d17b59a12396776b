"""The committer: asks each table's ledger, and commits data files and the ledger as one version of the table."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from distcommit.core.errors import ConfigurationError, ConflictError, CorruptError, error_text
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    HeldBack,
    LostAttempt,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.support.parallel import in_flight
from distcommit.sinks.base.error_collection import OneByOne
from distcommit.sinks.base.ledgers import allowed_again, answered, committed, taken_back
from distcommit.sinks.base.offset_coverage import covered_in
from distcommit.sinks.base.retries import tries
from distcommit.sinks.delta.altered import altered
from distcommit.sinks.delta.data_files import added, name_in_table, removed
from distcommit.sinks.delta.ledger import LedgerChange, TableLedgers
from distcommit.sinks.delta.leftovers import existing, kept, leftovers
from distcommit.sinks.delta.schemas import check_writable
from distcommit.sinks.delta.settings import DeltaSettings
from distcommit.sinks.delta.tables import DeltaTables, table_id
from distcommit.sinks.table_formats.data_files import sync_locations
from distcommit.sinks.table_formats.ledger_files import Ledger
from distcommit.sinks.table_formats.table_changes import was_dropped, was_emptied, was_recreated

logger = logging.getLogger(__name__)
_MOST_FAILURES = 3
_AGAIN = "others changed the table again and again"


@dataclass(slots=True)
class _Batch:
    """Requests for one table by their index in the call, and answers.

    Attributes:
        whole: whether all of them are committed, or none.
        put: ledger files of tries that did not commit, as far as is known.
        version: the table's when they were put.
        superseded: ledger files that the commit has replaced.
    """

    name: str
    requests: dict[int, CommitRequest]
    whole: bool = False
    answers: dict[int, CommitOutcome] = field(default_factory=dict)
    put: list[str] = field(default_factory=list)
    version: int = -1
    superseded: tuple[str, ...] = ()


class DeltaCommitter(SinkCommitter):
    """Commits the requests of each table as one version of it, of many tables at once where calls wait.

    A table is loaded, its ledger asked, and the commit made on that very version; who finds that it has changed loads
    it again, and asks again.
    """

    def __init__(self, sink: DeltaSettings, context: CommitterContext) -> None:
        self._sink, self._context = sink, context
        self._tables = DeltaTables(sink.location)
        self._ledgers = TableLedgers(context)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self._commit_all(requests, whole=False)

    def commit_whole(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self._commit_all(requests, whole=True)

    def _commit_all(self, requests: Sequence[CommitRequest], *, whole: bool) -> list[CommitOutcome]:
        batches = self._batches(requests, whole=whole)
        answers: dict[int, CommitOutcome] = {}
        lefts = in_flight(self._tables.location.parallel_calls, self._commit, batches)
        for batch, left in zip(batches, lefts, strict=True):
            answers |= batch.answers | dict.fromkeys(batch.requests.keys() - batch.answers.keys(), left)
        done = [
            self._tables.uri(batch.name)
            for batch in batches
            if any(isinstance(answer, Committed | AlreadyCommitted) for answer in batch.answers.values())
        ]
        sync_locations(self._context.fs, done)  # before anybody relies on it, whoever has committed it
        self._ledgers.delete(name for batch in batches for name in batch.superseded)
        return [answers[index] for index in range(len(requests))]

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        self._changed_in_tables(requests, self._take_back)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        self._changed_in_tables(requests, self._allow)

    def _changed_in_tables(
        self, requests: Sequence[CommitRequest], change: Callable[[DeltaTable, str, Sequence[CommitRequest]], bool]
    ) -> None:
        """Has each table changed, from the version that it then has."""
        for batch in self._batches(requests):
            for _ in tries():
                table = self._tables.load(batch.name)
                if table is None or change(table, batch.name, list(batch.requests.values())):
                    break
            else:
                raise ConflictError(_AGAIN, table=batch.name)

    def discard(self, lost: Sequence[LostAttempt]) -> None:
        location = self._tables.location
        location.check()
        each = OneByOne("what attempts have left in tables can't be taken away", self.probe)
        for name, paths in leftovers(self._context, self._sink.name, lost).items():
            with each.to(name):
                there = existing(location, paths)
                table = self._tables.load(name) if there else None
                if table is not None and self._ledger_of(table, name) is None:
                    raise ConflictError("others have changed the table meanwhile", table=name)
                for path in paths - kept(table, name, there):
                    location.delete(path)
        each.tell()

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        table = None if self._sink.shares_tables else self._tables.load(self._sink.table_of(dataset_urn))
        return table.count() if table is not None else None

    def ledger(self) -> Iterator[LedgerRow]:
        each = OneByOne("what is committed to tables can't be told")
        for name in [self._sink.table] if self._sink.shares_tables else self._tables.names():
            rows: Iterable[LedgerRow] = ()
            with each.to(name):
                table = self._tables.load(name)
                if table is not None:
                    rows = self._ledgers.read(table).rows.values()
            yield from rows
        each.tell()

    def probe(self) -> None:
        self._tables.probe()

    # -- committing

    def _batches(self, requests: Sequence[CommitRequest], *, whole: bool = False) -> list[_Batch]:
        found: dict[str, _Batch] = {}
        for index, request in enumerate(requests):
            name = request.infos[0]["table"] if request.infos else self._sink.table_of(request.dataset_urn)
            found.setdefault(name, _Batch(name, {}, whole)).requests[index] = request
        return list(found.values())

    def _commit(self, batch: _Batch) -> CommitOutcome:
        """Commits what can be, with the answers in the batch; what is left has the one that is returned."""
        reason, failures = _AGAIN, 0
        for number in tries():
            self.tried_again += 1 if number > 1 else 0
            try:
                if self._try(batch):
                    break
            except (ConfigurationError, CorruptError) as error:
                return FailedForGood(str(error))
            except Exception as error:
                logger.warning("a commit to a Delta table failed; what became of it is looked up", exc_info=True)
                reason, failures = error_text(error), failures + 1
                if failures == _MOST_FAILURES:
                    break
        return RetryLater(reason)

    def _try(self, batch: _Batch) -> bool:
        """One try; False if others were first. Raises if it is not known what became of it."""
        table, batch.answers = self._tables.load(batch.name), {}
        if table is None:
            batch.answers |= {index: was_dropped(batch.name, request) for index, request in batch.requests.items()}
            return True
        check_writable(table, batch.name)
        ledger = self._ledger_of(table, batch.name)
        if ledger is None:
            return False
        if batch.put and table.version() > batch.version:
            self._ledgers.delete(set(batch.put) - set(ledger.files))
            batch.put = []
        taken, change = self._staged(batch, table, ledger)
        if change is None:
            return True
        batch.put, batch.version = [*batch.put, *change.put], table.version()
        requests = [batch.requests[index] for index in taken]
        actions: list[AddAction] = [added(file) for each in requests for info in each.infos for file in info["files"]]
        epoch = max(request.epoch for request in requests)
        trace = {"distcommit.store": self._context.store_id, "distcommit.epoch": str(epoch)}
        if not self._tables.commit(table, actions, change.transaction, trace):
            return False
        batch.answers |= dict.fromkeys(taken, Committed())
        batch.superseded = change.superseded
        return True

    def _has_changed(self, table: DeltaTable, name: str) -> bool:
        now = self._tables.load(name)
        return now is None or (table_id(now), now.version()) != (table_id(table), table.version())

    def _staged(self, batch: _Batch, table: DeltaTable, ledger: Ledger) -> tuple[list[int], LedgerChange | None]:
        """Which requests are to be committed, and the ledger's change; the others have their answers in the batch."""
        taken: list[int] = []
        rows: list[LedgerRow] = []
        for index, request in batch.requests.items():
            row = ledger.rows.get((request.dataset_urn, request.branch))
            other = _other_table(table, request) or self._emptied(table, batch.name, request, row)
            answer = other or answered(row, request) or self._lost(request)
            answer = answer or altered(table, batch.name, self._tables.location, request)
            if answer is not None:
                batch.answers[index] = answer
                continue
            taken.append(index)
            rows.append(committed(row, request, covered_in(request.infos)))
        refused = next((index for index, answer in batch.answers.items() if isinstance(answer, FailedForGood)), None)
        if batch.whole and refused is not None:
            batch.answers |= dict.fromkeys(taken, HeldBack(batch.requests[refused].dataset_urn))
            return [], None
        return taken, self._ledgers.changed(ledger, rows, table) if rows else None

    def _lost(self, request: CommitRequest) -> CommitOutcome | None:
        """Refuse data files that are gone, or others."""
        location, files = self._tables.location, [file for info in request.infos for file in info["files"]]
        found = in_flight(location.parallel_calls, location.size_of, [file["path"] for file in files])
        gone = [location.uri(file["path"]) for file, now in zip(files, found, strict=True) if now != file["bytes"]]
        return FailedForGood(f"data files are gone, or others: {', '.join(gone[:3])}") if gone else None

    def _emptied(
        self, table: DeltaTable, name: str, request: CommitRequest, row: LedgerRow | None
    ) -> FailedForGood | None:
        has_ledger = self._ledgers.is_in(table)
        return was_emptied(name, request, row, has_ledger=has_ledger, has_rows=lambda: bool(table.file_uris()))

    # -- taking back

    def _take_back(self, table: DeltaTable, name: str, requests: Sequence[CommitRequest]) -> bool:
        """Takes them back of this version of the table; False if it has changed meanwhile."""
        requests = [request for request in requests if _other_table(table, request) is None]
        ledger = self._ledger_of(table, name)
        if ledger is None:
            return False
        old = [ledger.rows.get((request.dataset_urn, request.branch)) for request in requests]
        new = [taken_back(row, each, covered_in(each.infos)) for row, each in zip(old, requests, strict=True)]
        if new == old:
            sync_locations(self._context.fs, [self._tables.uri(name)])
            return True
        files = [
            file
            for row, request in zip(old, requests, strict=True)
            if row is not None and row.epoch == request.epoch
            for info in request.infos
            for file in info["files"]
        ]
        if files:
            _check_live(table, name, [file["path"] for file in files])
        trace = {"distcommit.taken-back": str(requests[0].epoch)}
        return self._put(table, name, self._ledgers.changed(ledger, new, table), [removed(f) for f in files], trace)

    def _allow(self, table: DeltaTable, name: str, requests: Sequence[CommitRequest]) -> bool:
        """Lets them be committed again to this version of the table; False if it has changed meanwhile."""
        requests = [request for request in requests if _other_table(table, request) is None]
        ledger = self._ledger_of(table, name)
        if ledger is None:
            return False
        old = [ledger.rows.get((request.dataset_urn, request.branch)) for request in requests]
        new = [allowed_again(row, each) for row, each in zip(old, requests, strict=True)]
        if new == old:
            sync_locations(self._context.fs, [self._tables.uri(name)])
            return True
        rows = [row for row in new if row is not None]
        trace = {"distcommit.allowed": str(requests[0].epoch)}
        return self._put(table, name, self._ledgers.changed(ledger, rows, table), [], trace)

    def _ledger_of(self, table: DeltaTable, name: str) -> Ledger | None:
        """The ledger of this version of the table; None if somebody has deleted what it was in, and changed the table.

        Raises:
            CorruptError: if it is gone, or can't be read.
        """
        try:
            return self._ledgers.read(table)
        except CorruptError:
            if self._has_changed(table, name):
                return None
            raise

    def _put(
        self,
        table: DeltaTable,
        name: str,
        change: LedgerChange,
        actions: Sequence[RemoveAction],
        trace: Mapping[str, str],
    ) -> bool:
        """Changes ledger rows, and removes data files with them, durably; False if the table has changed meanwhile."""
        told = {"distcommit.store": self._context.store_id, **trace}
        if not self._tables.commit(table, actions, change.transaction, told):
            return False
        sync_locations(self._context.fs, [self._tables.uri(name)])
        self._ledgers.delete(change.superseded)
        return True


def _check_live(table: DeltaTable, name: str, paths: Sequence[str]) -> None:
    live = {os.path.basename(path) for path in table.file_uris()}
    kept = table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true"
    if kept or not live.issuperset(map(name_in_table, paths)):
        raise ConflictError(
            "data files of the commit can't be taken out of the table",
            table=name,
            expected=f"all {len(paths)} of them in it, and delta.appendOnly not set",
            found="delta.appendOnly" if kept else "others in their place: it was compacted, or rows were deleted",
            todo="release the dataset with accept",
        )


def _other_table(table: DeltaTable, request: CommitRequest) -> FailedForGood | None:
    wanted = {info["id"] for info in request.infos}
    return was_recreated(request.infos[0]["table"] if request.infos else "", request, wanted, table_id(table))
