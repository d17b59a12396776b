"""The committer: asks each table's ledger, and commits data files and the ledger as one change of the table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties

from distcommit.core.errors import ConflictError, CorruptError, error_text
from distcommit.core.interfaces.committer import (
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
from distcommit.sinks.iceberg.altered import altered
from distcommit.sinks.iceberg.catalogs import Change, Identifier, readable
from distcommit.sinks.iceberg.data_files import data_file, folders_of
from distcommit.sinks.iceberg.leftovers import delete, existing, kept, leftovers, live
from distcommit.sinks.iceberg.opening import opened
from distcommit.sinks.iceberg.settings import IcebergSettings
from distcommit.sinks.iceberg.snapshots import NewSnapshot
from distcommit.sinks.table_formats.data_files import sync_locations
from distcommit.sinks.table_formats.ledger_files import Change as LedgerChange
from distcommit.sinks.table_formats.ledger_files import Ledger, Ledgers
from distcommit.sinks.table_formats.table_changes import was_dropped, was_emptied, was_recreated

logger = logging.getLogger(__name__)
_MOST_FAILURES = 3
_WRITE_PATHS = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)


@dataclass(slots=True)
class _Batch:
    """Requests for one table that have no answer yet; `requests` by their index in the call. `whole`: all of them are
    committed, or none."""

    name: Identifier
    requests: dict[int, CommitRequest]
    whole: bool = False
    answers: dict[int, CommitOutcome] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)
    snapshot: NewSnapshot | None = None
    ledger: LedgerChange | None = None


class IcebergCommitter(SinkCommitter):
    """Commits the requests of many tables at once, each table's as one snapshot.

    A table is loaded, its ledger asked, and the change made on that very version; who finds that it has changed loads
    it again, and asks again.
    """

    def __init__(self, sink: IcebergSettings, context: CommitterContext) -> None:
        self._sink, self._context = sink, context
        self._tables, self._namespace = opened(sink.catalog), tuple(sink.namespace.split("."))
        self._ledgers = Ledgers(context.fs, context.output_root, context.store_id)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self._commit(requests, whole=False)

    def commit_whole(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self._commit(requests, whole=True)

    def _commit(self, requests: Sequence[CommitRequest], *, whole: bool) -> list[CommitOutcome]:
        answers: dict[int, CommitOutcome] = {}
        batches, reason, failures = self._batches(requests, whole=whole), "others changed the table again and again", 0
        for number in tries():
            self.tried_again += 1 if number > 1 else 0
            try:
                self._round(batches)
            except Exception as error:
                logger.warning("a commit to Iceberg tables failed; what became of it is looked up", exc_info=True)
                reason, failures = error_text(error), failures + 1
            for batch in batches:
                answers |= batch.answers
                for index in batch.answers:
                    batch.requests.pop(index, None)
            batches = [batch for batch in batches if batch.requests]
            if not batches or failures == _MOST_FAILURES:
                break
        return [answers.get(index, RetryLater(reason)) for index in range(len(requests))]

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        self._changed_in_tables(requests, self._take_back)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        self._changed_in_tables(requests, self._allow)

    def _changed_in_tables(
        self, requests: Sequence[CommitRequest], change: Callable[[Table, Sequence[CommitRequest]], bool]
    ) -> None:
        """Has each table changed, from the version that it then has."""
        for batch in self._batches(requests):
            for _ in tries():
                table = self._tables.load([batch.name]).get(batch.name)
                if table is None:
                    break
                try:
                    if change(table, list(batch.requests.values())):
                        break
                except CorruptError:
                    if not self._has_changed(table):
                        raise
            else:
                raise ConflictError("others changed the table again and again", table=".".join(batch.name))

    def discard(self, lost: Sequence[LostAttempt]) -> None:
        each = OneByOne("what attempts have left in tables can't be taken away", self.probe)
        for name, files in leftovers(self._context, self._sink.name, lost).items():
            with each.to(".".join(name)):
                there = existing(self._tables, files)
                tables = list(self._tables.load([name]).values()) if there else []
                for table in tables:
                    self._rows_of(table)  # raises if nobody can tell what is committed
                delete(self._tables, files.keys() - kept(tables, there, self._tables.parallel_calls), tables)
        each.tell()

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        name = self._sink.table_of(dataset_urn)
        table = None if self._sink.shares_tables else self._tables.load([name]).get(name)
        return table.scan().count() if table is not None else None

    def ledger(self) -> Iterator[LedgerRow]:
        each = OneByOne("what is committed to tables can't be told")
        for name, table in self._tables.read(self._tables.names(self._namespace)).items():
            rows: Iterable[LedgerRow] = ()
            with each.to(".".join(name)):
                rows = self._rows_of(readable(table))
            yield from rows
        each.tell()

    def probe(self) -> None:
        self._tables.probe(self._namespace)
        told = (self._sink.properties.get(name, "") for name in _WRITE_PATHS)
        self._tables.probe_places([*told, self._tables.catalog.properties.get("warehouse", "")])

    def _ledger_of(self, table: Table) -> Ledger:
        properties = table.metadata.properties
        return self._ledgers.read(properties.get(self._ledgers.name), str(table.metadata.table_uuid))

    def _rows_of(self, table: Table) -> Iterable[LedgerRow]:
        try:
            return self._ledger_of(table).rows.values()
        except CorruptError:
            if not self._has_changed(table):
                raise
        now = self._tables.load([table.name()]).get(table.name())
        return self._rows_of(now) if now is not None else ()

    def _has_changed(self, table: Table) -> bool:
        """Whether it is another version by now. Who changes a table deletes what its ledger was in, so that a ledger
        that can't be read is damage only if this is False."""
        now = self._tables.load([table.name()]).get(table.name())
        return now is None or now.metadata_location != table.metadata_location

    # -- committing

    def _batches(self, requests: Sequence[CommitRequest], *, whole: bool = False) -> list[_Batch]:
        found: dict[Identifier, _Batch] = {}
        for index, request in enumerate(requests):
            name = tuple(request.infos[0]["table"]) if request.infos else self._sink.table_of(request.dataset_urn)
            found.setdefault(name, _Batch(name, {}, whole)).requests[index] = request
        return list(found.values())

    def _round(self, batches: list[_Batch]) -> None:
        """One try for all. Raises if it is not known what became of it."""
        tables = self._tables.read([batch.name for batch in batches])
        changes = in_flight(
            self._tables.parallel_calls, lambda batch: self._change(batch, tables.get(batch.name)), batches
        )
        going = [(batch, change) for batch, change in zip(batches, changes, strict=True) if change is not None]
        if not going:
            return
        made = self._tables.commit(
            [change for _, change in going],
            lambda: sync_locations(
                self._context.fs, (folder for _, change in going for folder in folders_of(change.table))
            ),
        )
        for (batch, _), ok in zip(going, made, strict=True):
            if ok:
                batch.answers |= dict.fromkeys(batch.taken, Committed())
                assert batch.ledger is not None
                self._ledgers.delete(batch.ledger.superseded)
                batch.snapshot = None

    def _change(self, batch: _Batch, table: Table | Exception | None) -> Change | None:
        """The change that commits what can be of a batch; the others, or all, have their answers in the batch."""
        batch.answers = {}
        if isinstance(table, Exception):
            batch.answers = dict.fromkeys(batch.requests, RetryLater(error_text(table)))
            return None
        try:
            return self._stage(batch, table)
        except CorruptError as error:
            if table is not None and self._has_changed(table):
                batch.answers = {}
                return None  # without answers: the next round loads it again
            answer: CommitOutcome = FailedForGood(str(error))
        except Exception as error:  # noqa: BLE001 - a client's, or a file system's: the other tables are not to suffer
            answer = RetryLater(error_text(error))
        batch.answers = dict.fromkeys(batch.requests, answer)
        return None

    def _stage(self, batch: _Batch, table: Table | None) -> Change | None:
        if table is None:
            name = ".".join(batch.name)
            batch.answers |= {index: was_dropped(name, request) for index, request in batch.requests.items()}
            return None
        metadata = table.metadata
        ledger = self._ledger_of(table)
        _forget_lost(batch, table, self._ledgers)
        batch.taken = []
        rows: list[LedgerRow] = []
        files: list[DataFile] = []
        there = _live_without_row(table, ledger, batch.requests.values(), self._tables.parallel_calls)
        for index, request in batch.requests.items():
            row = ledger.rows.get((request.dataset_urn, request.branch))
            answer = _other_table(table, request) or self._emptied(table, request, row) or answered(row, request)
            answer = answer or _committed_before(request, there)
            answer = answer or _lost(table, request, self._tables.parallel_calls) or altered(table, request)
            if answer is not None:
                batch.answers[index] = answer
                continue
            batch.taken.append(index)
            rows.append(committed(row, request, covered_in(request.infos)))
            files += files_of(table, request)
        refused = next((index for index, answer in batch.answers.items() if isinstance(answer, FailedForGood)), None)
        if batch.whole and refused is not None:
            batch.answers |= dict.fromkeys(batch.taken, HeldBack(batch.requests[refused].dataset_urn))
            return None
        if not rows:
            return None
        batch.ledger = self._ledgers.changed(ledger, rows, str(metadata.table_uuid))
        batch.snapshot = NewSnapshot.of(table)
        epoch = max(batch.requests[index].epoch for index in batch.taken)
        trace = {"distcommit.store": self._context.store_id, "distcommit.epoch": str(epoch)}
        return batch.snapshot.change(files, frozenset(), {self._ledgers.name: batch.ledger.text}, trace)

    def _emptied(self, table: Table, request: CommitRequest, row: LedgerRow | None) -> FailedForGood | None:
        has_ledger = self._ledgers.name in table.metadata.properties
        return was_emptied(
            ".".join(table.name()), request, row, has_ledger=has_ledger, has_rows=lambda: _has_rows(table)
        )

    # -- taking back

    def _take_back(self, table: Table, requests: Sequence[CommitRequest]) -> bool:
        """Takes them back of this version of the table; False if it has changed meanwhile."""
        requests = [request for request in requests if _other_table(table, request) is None]
        ledger = self._ledger_of(table)
        keys = [(request.dataset_urn, request.branch) for request in requests]
        old = [ledger.rows.get(key) for key in keys]
        new = [taken_back(row, each, covered_in(each.infos)) for row, each in zip(old, requests, strict=True)]
        if new == old:
            return True
        removed = {
            path
            for row, request in zip(old, requests, strict=True)
            if row is not None and row.epoch == request.epoch
            for path in _paths(request)
        } | _live_without_row(table, ledger, requests, self._tables.parallel_calls)
        return self._put(table, ledger, new, removed, ("distcommit.taken-back", requests[0].epoch))

    def _allow(self, table: Table, requests: Sequence[CommitRequest]) -> bool:
        """Lets them be committed again to this version of the table; False if it has changed meanwhile."""
        requests = [request for request in requests if _other_table(table, request) is None]
        ledger = self._ledger_of(table)
        old = [ledger.rows.get((request.dataset_urn, request.branch)) for request in requests]
        new = [allowed_again(row, request) for row, request in zip(old, requests, strict=True)]
        rows = [row for row in new if row is not None]
        return new == old or self._put(table, ledger, rows, set(), ("distcommit.allowed", requests[0].epoch))

    def _put(
        self, table: Table, ledger: Ledger, rows: Sequence[LedgerRow], removed: set[str], what: tuple[str, int]
    ) -> bool:
        """Changes ledger rows, and removes data files with them; False if the table has changed meanwhile."""
        changed = self._ledgers.changed(ledger, rows, str(table.metadata.table_uuid))
        snapshot = NewSnapshot.of(table)
        trace = {"distcommit.store": self._context.store_id, what[0]: str(what[1])}
        change = snapshot.change([], removed, {self._ledgers.name: changed.text}, trace)
        if change is None:
            snapshot.forget()
            raise ConflictError(
                "data files of the commit are no longer in the table",
                table=".".join(table.name()),
                expected=f"all {len(removed)} of them",
                found="others in their place: the table was compacted, or rows were deleted",
                todo="release the dataset with accept",
            )
        (made,) = self._tables.commit([change], lambda: sync_locations(self._context.fs, folders_of(table)))
        if made:
            self._ledgers.delete(changed.superseded)
        return made


def _paths(request: CommitRequest) -> list[str]:
    return [file["path"] for info in request.infos for file in info["files"]]


def _forget_lost(batch: _Batch, table: Table, ledgers: Ledgers) -> None:
    """Deletes what the last round has written for a table, if the table was changed by somebody else instead."""
    snapshot, batch.snapshot = batch.snapshot, None
    if snapshot is None or not snapshot.has_lost(table):
        return
    snapshot.forget()
    if batch.ledger is not None and batch.ledger.put:
        ledgers.delete([batch.ledger.put])


def _lost(table: Table, request: CommitRequest, parallel_calls: int) -> CommitOutcome | None:
    paths = _paths(request)
    there = in_flight(parallel_calls, lambda path: table.io.new_input(path).exists(), paths)
    gone = [path for path, ok in zip(paths, there, strict=True) if not ok]
    return FailedForGood(f"data files are gone: {', '.join(gone[:3])}") if gone else None


def _live_without_row(table: Table, ledger: Ledger, requests: Iterable[CommitRequest], parallel_calls: int) -> set[str]:
    """Data files of requests, of whose dataset and branch the ledger has no row, that the table has nevertheless: the
    row was taken away after its commit. Only where there is none the table is looked at, which takes long."""
    unknown = [each for each in requests if (each.dataset_urn, each.branch) not in ledger.rows]
    return live(table, {path for request in unknown for path in _paths(request)}, parallel_calls)


def _committed_before(request: CommitRequest, there: set[str]) -> CommitOutcome | None:
    """Of a request whose data files are in the table, though its ledger has no row of it."""
    found = [path for path in _paths(request) if path in there]
    if not found:
        return None
    return FailedForGood(
        f"the table has data files of this commit, and its ledger has no row of the dataset: the ledger was taken away."
        f" Nothing was written. Found {', '.join(found[:3])}. Release the dataset with accept, as they are there; or"
        " with abandon, which takes them out, and the next run reads it again"
    )


def files_of(table: Table, request: CommitRequest) -> list[DataFile]:
    """The data files of a request, as the table's manifests have them."""
    specs, schemas = table.metadata.specs(), {schema.schema_id: schema for schema in table.metadata.schemas}
    return [
        data_file(file, specs[file["spec"]], schemas[file["schema"]])
        for info in request.infos
        for file in info["files"]
    ]


def _has_rows(table: Table) -> bool:
    snapshot = table.current_snapshot()
    found = snapshot.manifests(table.io) if snapshot is not None else []
    return any(each.has_added_files() or each.has_existing_files() for each in found)


def _other_table(table: Table, request: CommitRequest) -> FailedForGood | None:
    wanted = {info["uuid"] for info in request.infos}
    return was_recreated(".".join(table.name()), request, wanted, str(table.metadata.table_uuid))
