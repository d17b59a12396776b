"""Base class of committers that add data files and the new ledger in one version of a table.

If another writer has changed the table meanwhile, it is loaded again and every decision is repeated.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from distcommit.core.errors import ConfigurationError, ConflictError, CorruptError, UnknownVersionError, error_text
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    CommitOutcome,
    CommitRequest,
    CommitterContext,
    FailedForGood,
    HeldBack,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.base.error_collection import ErrorCollector
from distcommit.sinks.base.idempotent_commit import allowed_again, answered, committed, taken_back
from distcommit.sinks.base.offset_coverage import covered_in
from distcommit.sinks.base.retries import tries
from distcommit.sinks.table_formats.data_file_sink import DataFileSink
from distcommit.sinks.table_formats.data_files import warn_of_gone_table
from distcommit.sinks.table_formats.ledger_files import Key, Ledger
from distcommit.sinks.table_formats.table_access import NameT, TableAccess, TableT
from distcommit.sinks.table_formats.table_refusals import ALWAYS_CHANGED, was_altered, was_emptied, was_recreated

logger = logging.getLogger(__name__)
MOST_FAILURES = 3
"""Failed tries until requests are left to the next call."""


BatchT = TypeVar("BatchT", bound="Batch[Any]")


@dataclass(slots=True)
class Batch(Generic[NameT]):
    """The requests of one call for one table. Indices count the requests of the call.

    Attributes:
        name: name of the table.
        requests: the requests by index.
        is_atomic: whether all requests are committed or none.
        answers: outcomes of requests by index.
        indices: indices of the requests that the current try commits.
        reason: the reason why requests have no outcome yet.
        failures: number of tries that raised an error.
        unknown_version: the error if another version of distcommit wrote the table's ledger.
    """

    name: NameT
    requests: dict[int, CommitRequest]
    is_atomic: bool = False
    answers: dict[int, CommitOutcome] = field(default_factory=dict)
    indices: list[int] = field(default_factory=list)
    reason: str = ALWAYS_CHANGED
    failures: int = 0
    unknown_version: UnknownVersionError | None = None

    def answer_all(self, outcome: CommitOutcome) -> None:
        self.answers |= dict.fromkeys(self.requests.keys() - self.answers.keys(), outcome)

    @property
    def is_answered(self) -> bool:
        return self.answers.keys() == self.requests.keys()


class DataFileCommitter(TableAccess[NameT, TableT], SinkCommitter, Generic[NameT, TableT, BatchT]):
    """Committer of data files in tables' folders.

    Attributes:
        id_key: key in a commit info of the table's id.
        new_batch: class of the batches.
        ledger_can_be_unset: whether users can remove the ledger without the data files.
    """

    id_key: ClassVar[str]
    new_batch: ClassVar[Any]
    ledger_can_be_unset: ClassVar[bool] = False

    def __init__(self, settings: DataFileSink, context: CommitterContext) -> None:
        self._settings, self._context = settings, context

    # -- committing

    @abstractmethod
    def try_batches(self, batches: Sequence[BatchT]) -> None:
        """Try once to commit each batch, and set the outcomes. If another writer commits first, set no outcome. Pass
        errors to `failed`: the outcome is unknown, and the next try checks it."""

    def end_commit(self, batches: Sequence[BatchT]) -> None: ...

    def refused(self, batch: BatchT, error: CorruptError | ConfigurationError) -> None:
        """Set the outcomes of a batch whose table or ledger can't be used. If another version wrote the ledger,
        requests stay pending, and `commit_all` raises at its end."""
        if isinstance(error, UnknownVersionError):
            batch.unknown_version = error
            batch.answer_all(RetryLater(str(error)))
        else:
            batch.answer_all(FailedForGood(str(error)))

    def commit_all(self, requests: Sequence[CommitRequest], *, atomic: bool) -> list[CommitOutcome]:
        batches: list[BatchT] = [
            self.new_batch(name, requested, atomic) for name, requested in self.by_table(requests).items()
        ]
        waiting = batches
        for number in tries():
            self.retry_count += 1 if number > 1 else 0
            self.try_batches(waiting)
            waiting = [t for t in waiting if not t.is_answered and t.failures < MOST_FAILURES]
            if not waiting:
                break
        self.end_commit(batches)
        for batch in batches:
            if batch.unknown_version is not None:
                raise batch.unknown_version  # the caller repeats each request alone
        answers: dict[int, CommitOutcome] = {}
        for batch in batches:
            batch.answer_all(RetryLater(batch.reason))
            answers |= batch.answers
        return [answers[index] for index in range(len(requests))]

    def failed(self, batches: Iterable[BatchT], error: Exception) -> None:
        logger.warning("a commit of data files failed; its outcome is looked up", exc_info=error)
        for batch in batches:
            batch.reason, batch.failures = error_text(error), batch.failures + 1

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self.commit_all(requests, atomic=False)

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return self.commit_all(requests, atomic=True)

    def by_table(self, requests: Sequence[CommitRequest]) -> dict[NameT, dict[int, CommitRequest]]:
        grouped: dict[NameT, dict[int, CommitRequest]] = {}
        for index, request in enumerate(requests):
            name = self.name_in(request.infos[0]) if request.infos else self.name_for(request.dataset_urn)
            grouped.setdefault(name, {})[index] = request
        return grouped

    def decide(self, batch: Batch[NameT], table: TableT, ledger: Ledger) -> list[LedgerRow]:
        """Set the outcomes of requests that must not be committed. Return the new ledger rows of the others, in the
        order of `batch.indices`."""
        batch.indices = []
        rows: list[LedgerRow] = []
        live_paths = self._live_without_row(table, ledger, batch.requests.values())
        for index, request in batch.requests.items():
            row = ledger.rows.get(_key(request))
            answer: CommitOutcome | None = self._recreated(batch.name, table, request)
            answer = answer or self._emptied(batch.name, table, request, row)
            answer = answer or answered(row, request)
            answer = answer or _without_row(request, live_paths) or self._missing(table, request)
            answer = answer or was_altered(shown(batch.name), [*self.alterations(table, request)])
            if answer is not None:
                batch.answers[index] = answer
                continue
            batch.indices.append(index)
            rows.append(committed(row, request, covered_in(request.infos)))
        refused = next((index for index, answer in batch.answers.items() if isinstance(answer, FailedForGood)), None)
        if batch.is_atomic and refused is not None:
            batch.answers |= dict.fromkeys(batch.indices, HeldBack(batch.requests[refused].dataset_urn))
            batch.indices, rows = [], []
        return rows

    def trace(self, **values: int) -> dict[str, str]:
        named = {f"distcommit.{name.replace('_', '-')}": str(value) for name, value in values.items()}
        return {"distcommit.store": self._context.store_id, **named}

    def _recreated(self, name: NameT, table: TableT, request: CommitRequest) -> FailedForGood | None:
        requested = {info[self.id_key] for info in request.infos}
        return was_recreated(shown(name), request, requested, self.table_id(table))

    def _emptied(
        self, name: NameT, table: TableT, request: CommitRequest, row: LedgerRow | None
    ) -> FailedForGood | None:
        has_ledger = self.has_ledger(table)
        return was_emptied(shown(name), request, row, has_ledger=has_ledger, has_rows=lambda: self.has_rows(table))

    def _missing(self, table: TableT, request: CommitRequest) -> FailedForGood | None:
        missing = self.missing_files(table, request)
        return FailedForGood(f"data files are missing or were replaced: {', '.join(missing[:3])}") if missing else None

    def _live_without_row(self, table: TableT, ledger: Ledger, requests: Iterable[CommitRequest]) -> set[str]:
        """Return live data files of requests without a ledger row, which show that the row was removed. Live files are
        listed only for such requests, because that is slow."""
        if not self.ledger_can_be_unset:
            return set()
        unknown = [request for request in requests if _key(request) not in ledger.rows]
        return self.live_files(table, {file["path"] for request in unknown for file in files_of(request)})

    # -- taking back

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        errors = ErrorCollector("data files of aborted attempts can't be deleted", self.probe)
        for name, files in self.orphaned_files(aborted_attempts).items():
            with errors.collecting(shown(name)):
                present = self.existing(files)
                # without a readable ledger, committed files are unknown
                newest = self.with_ledger(name, self.load(name)) if present else None
                table = None if newest is None else newest[0]
                if present and table is None:
                    warn_of_gone_table(present)
                retained = (
                    present if table is None else self.needed(name, table, {file: files[file] for file in present})
                )
                self.delete(files.keys() - retained, table)
        errors.raise_collected()

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        self._change_tables(requests, takes_back=True)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        self._change_tables(requests, takes_back=False)

    def _change_tables(self, requests: Sequence[CommitRequest], *, takes_back: bool) -> None:
        for name, table_requests in self.by_table(requests).items():
            for _ in tries():
                newest = self.with_ledger(name, self.load(name))
                if newest is None or self._change_rows(
                    name, *newest, list(table_requests.values()), takes_back=takes_back
                ):
                    break
            else:
                raise ConflictError(ALWAYS_CHANGED, table=shown(name))

    def _change_rows(
        self, name: NameT, table: TableT, ledger: Ledger, requests: Sequence[CommitRequest], *, takes_back: bool
    ) -> bool:
        """Revoke requests, or permit revoked ones again. Return False if another writer has committed first."""
        requests = [request for request in requests if self._recreated(name, table, request) is None]
        old = [ledger.rows.get(_key(request)) for request in requests]
        new = [
            taken_back(row, request, covered_in(request.infos)) if takes_back else allowed_again(row, request)
            for row, request in zip(old, requests, strict=True)
        ]
        if new == old:
            self.make_durable(name)
            return True
        rows = [row for row in new if row is not None]
        if not takes_back:
            return self.put(name, table, ledger, rows, [], self.trace(allowed=requests[0].epoch))
        live_paths = self._live_without_row(table, ledger, requests)
        removed = [
            file
            for row, request in zip(old, requests, strict=True)
            for file in files_of(request)
            if (row is not None and row.epoch == request.epoch) or file["path"] in live_paths
        ]
        return self.put(name, table, ledger, rows, removed, self.trace(taken_back=requests[0].epoch))

    # -- reading

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        table = None if self._settings.shares_tables else self.load(self.name_for(dataset_urn))
        return None if table is None else self.count(table)

    def ledger(self) -> Iterator[LedgerRow]:
        errors = ErrorCollector("the ledgers of some tables can't be read")
        for name, load in self.tables():
            rows: Iterable[LedgerRow] = ()
            with errors.collecting(shown(name)):
                newest = self.with_ledger(name, load())
                rows = () if newest is None else newest[1].rows.values()
            yield from rows
        errors.raise_collected()

    def with_ledger(self, name: NameT, table: TableT | None) -> tuple[TableT, Ledger] | None:
        """Return the table with its ledger; None if the table does not exist. If another writer has replaced the
        ledger, load the newest version. Raises CorruptError if a ledger file of the newest version is missing or
        damaged."""
        if table is None:
            return None
        try:
            return table, self.read_ledger(table)
        except CorruptError:
            if not self.has_changed(name, table):
                raise
        return self.with_ledger(name, self.load(name))


def shown(name: str | tuple[str, ...]) -> str:
    return name if isinstance(name, str) else ".".join(name)


def files_of(request: CommitRequest) -> list[dict[str, Any]]:
    return [file for info in request.infos for file in info["files"]]


def _key(request: CommitRequest) -> Key:
    return request.dataset_urn, request.branch


def _without_row(request: CommitRequest, live_paths: AbstractSet[str]) -> FailedForGood | None:
    present = [file["path"] for file in files_of(request) if file["path"] in live_paths]
    if not present:
        return None
    return FailedForGood(
        f"the table has data files of this commit, but its ledger has no row of the dataset: the ledger was removed."
        f" Nothing was written. Present: {', '.join(present[:3])}. Release the dataset with accept to keep these files;"
        " or with abandon, which removes them, and the next run reads the records again"
    )
