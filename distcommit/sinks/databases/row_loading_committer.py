"""Base class of committers that load staged rows into tables."""

from __future__ import annotations

import re
import secrets
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from distcommit.core.errors import ConflictError, CorruptError
from distcommit.core.interfaces.committer import CommitRequest, CommitterContext
from distcommit.core.interfaces.ledger import Covered, LedgerRow, check_version
from distcommit.core.support.decoding import converted
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.databases.arrow_conversion import refused_value
from distcommit.sinks.databases.mirrored_changes import DELETED_AT, apply_changes, check_exact_keys, deleted_schema
from distcommit.sinks.databases.newer_rows import EPOCH, OF, ORDER_COLUMNS, Newer, oldest_first, with_order
from distcommit.sinks.databases.staged_rows import rows_of, staged_runs
from distcommit.sinks.databases.table_committer import LEDGER, Key, RefusedError, TableCommitter
from distcommit.sinks.databases.table_interface import Table
from distcommit.sinks.databases.table_sink import TableSink, tag_of

LEDGER_COLUMNS = "dataset, branch, epoch, base, revoked, commit_id, covered"
"""Columns of the ledger table, in the order that `as_row` expects."""
_IDENTITY = re.compile(r"distcommit:([0-9a-f]{15})")


class RowLoadingCommitter(TableCommitter):
    """Committer that loads staged rows; a subclass implements the tables and the ledger of one database.

    Attributes:
        forgotten: ledger column to set to null so that a recreated table counts as the old one.
        exact_keys: instruction to the operator, after which a table compares its keys by bytes.
    """

    forgotten: ClassVar[str] = "target"
    exact_keys: ClassVar[str]

    def __init__(self, settings: TableSink, context: CommitterContext) -> None:
        self._settings, self._context = settings, context
        self._targets: dict[Key, tuple[str | None, int | None]] = {}

    @abstractmethod
    def find(self, name: str, tags: Mapping[str, int]) -> Table | None:
        """Return the table, locked against ALTER; None if it does not exist. Raises RefusedError if it is not
        transactional."""

    @abstractmethod
    def create_table(self, name: str, rows: pa.Schema, tags: Mapping[str, int]) -> Table:
        """Create the table, unless another session has done so, and return it."""

    @abstractmethod
    def shown(self, name: str) -> str: ...

    @abstractmethod
    def had_commits(self, target: str) -> bool:
        """Return whether any store has committed to the table."""

    @abstractmethod
    def has_commits_of_others(self, target: str, tag: int) -> bool:
        """Return whether a store, dataset or branch with another tag has committed to the table."""

    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        settings, table, deleted = self._settings, None, None
        self._check_operation(request)
        for batches, newer in self._runs(request):
            schema = batches[0].schema
            if settings.mode == "mirror":
                schema = schema.remove(schema.get_field_index(settings.operation))
            if table is None:
                table = self._table(request, row, schema)
                self._targets[request.dataset_urn, request.branch] = (table.shown, table.identity)
                if settings.mode == "replace":
                    self._delete_older(table, request)
            table.fit(schema, add_columns=settings.evolve == "add_columns")
            if settings.mode == "mirror":
                if deleted is None:
                    deleted = self._deleted_keys(request, table, schema)
                    for each in (table, deleted):
                        check_exact_keys(each, settings.keys, self.exact_keys)
                deleted.fit(deleted_schema(schema, settings.keys, settings.version), add_columns=True)
                changes = pa.Table.from_batches(batches)
                apply_changes(table, deleted, changes, settings.keys, settings.operation, newer, self._now_s())
            elif settings.mode == "upsert":
                table.upsert(batches, settings.keys, newer)
            else:
                table.copy(batches)

    def _check_operation(self, request: CommitRequest) -> None:
        """Raise RefusedError if the rows were staged with another `operation` than the sink has now."""
        expected = self._settings.operation if self._settings.mode == "mirror" else ""
        for info in request.infos:
            staged = info.get("operation", "")
            if staged != expected:
                as_staged = f"`mode: mirror` and `operation: {staged}`" if staged else "another mode than mirror"
                raise RefusedError(
                    f"the rows were staged with {as_staged}. Nothing was written. Restore the setting, release the"
                    " dataset with retry, and change the setting after the next run"
                )

    def _deleted_keys(self, request: CommitRequest, table: Table, schema: pa.Schema) -> Table:
        """Return the table of deleted keys, without expired ones. Raises RefusedError if another dataset or job writes
        to the mirrored table."""
        urn, settings = request.dataset_urn, self._settings
        if self.has_commits_of_others(table.shown, tag_of(self._context.store_id, urn, request.branch)):
            raise RefusedError(
                f"another dataset, branch or job has written to table {table.shown}, and changes of two sources have no"
                f" common order. Nothing was written. Name another table; or set {self.forgotten} to null in the rows"
                f" of {LEDGER} whose source does not write to the table any more. Then release the dataset with retry"
            )
        name = settings.deleted_table_of(urn)
        deleted = self.find(name, {})
        if deleted is None and not settings.create:
            columns = ", ".join(deleted_schema(schema, settings.keys, settings.version).names)
            raise RefusedError(
                f"the table of deleted keys {self.shown(name)} does not exist. Create it with the columns {columns} and"
                f" the primary key {', '.join(settings.keys)}, or set `create: true`, then release the dataset with"
                " retry"
            )
        if deleted is None:
            return self.create_table(name, deleted_schema(schema, settings.keys, settings.version), {})
        deleted.delete_before(DELETED_AT, self._now_s() - settings.keep_deleted_days * 86_400)
        return deleted

    def _now_s(self) -> int:
        return int(time.time())

    def _runs(self, request: CommitRequest) -> Iterator[tuple[Sequence[pa.RecordBatch], Newer]]:
        of = tag_of(self._context.store_id, request.dataset_urn, MAIN_BRANCH)  # of all branches: they share positions
        for info in request.infos:
            epochs = info.get("epochs", ())
            newer = Newer(self._settings.version, bool(epochs), info.get("by_reading", False))
            for path, checksum in info["files"]:
                for batches in staged_runs(self._context, path, checksum):
                    if self._settings.has_order_columns:
                        epoch = min(epochs, default=request.epoch)
                        ready = [with_order(batch, of, epoch) for batch in batches]
                        yield oldest_first(ready, ""), newer
                    elif self._settings.version:
                        yield oldest_first(batches, self._settings.version), newer
                    else:
                        yield batches, newer

    def unload(self, request: CommitRequest) -> None:
        urn, epoch = request.dataset_urn, request.epoch
        if not self._settings.takes_back:
            raise ConflictError(
                "a commit to this table can't be taken back",
                id="COMMIT_NOT_REVERSIBLE",
                dataset=urn,
                epoch=epoch,
                expected="a sink of mode append with `tags: true`, which identify its rows",
                found=f"mode {self._settings.mode}" + ("" if self._settings.tags else " without tags"),
                todo="release the dataset with accept",
            )
        self.delete_committed(request, rows_of(request.infos))

    def delete_committed(self, request: CommitRequest, expected: int) -> None:
        """Delete a request's rows; raises ConflictError if their number is not the expected one."""
        urn, epoch, tags = request.dataset_urn, request.epoch, self._tags(request)
        name = self._settings.table_of(urn)
        table = self.find(name, tags)
        deleted = 0 if table is None else table.delete(tags)
        if deleted != expected:
            raise ConflictError(
                "some of the committed rows are missing",
                id="COMMIT_NOT_REVERSIBLE",
                dataset=urn,
                epoch=epoch,
                expected=f"{expected} rows with its tags in table {name}",
                found=str(deleted),
                todo="release the dataset with accept",
            )

    def _table(self, request: CommitRequest, row: LedgerRow | None, rows: pa.Schema) -> Table:
        """Return the dataset's table, locked, after creating a missing one. Raises RefusedError if the table was
        recreated since a commit, or is missing and may not be created."""
        key = (request.dataset_urn, request.branch)
        name, tags = self._settings.table_of(request.dataset_urn), self._tags(request)
        table, shown = self.find(name, tags), self.shown(name)
        _, identity = self._targets.get(key, (None, None))
        is_known = row is not None and row.epoch > 0 and identity is not None
        if table is None and self._settings.create and not is_known and not self._is_shared_and_was_there(shown):
            return self.create_table(name, rows, tags)
        if table is None or (is_known and table.identity != identity):
            actual = "does not exist" if table is None else "was dropped and recreated"
            but = ", although the ledger has commits to it" if is_known or self._settings.create else ""
            raise RefusedError(
                f"table {shown} {actual}{but}. Nothing was written. Restore it with its rows, or create it; set"
                f" {self.forgotten} to null in {LEDGER} if a new table is to count as the same. Then release the"
                " dataset with retry"
            )
        return table

    def _is_shared_and_was_there(self, shown: str) -> bool:
        return self._settings.shares_tables and self.had_commits(shown)

    def _delete_older(self, table: Table, request: CommitRequest) -> None:
        tags = self._tags(request)
        tags.pop(EPOCH, None)
        table.delete(tags)

    def _tags(self, request: CommitRequest) -> dict[str, int]:
        if not self._settings.tags:
            return {}
        key = (request.dataset_urn, request.branch)
        return {OF: tag_of(self._context.store_id, *key), EPOCH: request.epoch}


def as_row(columns: Sequence[Any]) -> LedgerRow:
    """Return a ledger row from values of `LEDGER_COLUMNS`. `covered` is a list (version 1), as JSON or decoded. Raises
    UnknownVersionError or CorruptError if `covered` can't be read."""
    dataset, branch, epoch, base, revoked, commit_id, covered = columns[:7]
    try:
        plain = msgspec.json.decode(covered) if isinstance(covered, str | bytes) else covered
        if isinstance(plain, Mapping) and type(plain.get("version")) is int:
            check_version(plain["version"], table=LEDGER, dataset=dataset, branch=branch)
        entries = converted(plain, list[Covered])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(
            "a row of the ledger can't be read",
            id="LEDGER_CORRUPT",
            table=LEDGER,
            dataset=dataset,
            branch=branch,
            found=f"{error}: {str(covered)[:80]!r}",
            todo="restore its column `covered` from a backup of the database. Nothing was written",
        ) from error
    return LedgerRow(
        dataset_urn=dataset,
        branch=branch,
        epoch=epoch,
        base=base,
        revoked=revoked,
        commit_id=commit_id,
        covered=tuple(entries),
    )


def check_keys(batches: Sequence[pa.RecordBatch], keys: Sequence[str], columns: Mapping[str, Any]) -> None:
    """Raise RefusedError if a key is null, because two nulls are not equal in databases."""
    for key in keys:
        if any(batch.column(key).null_count for batch in batches):
            raise refused_value(key, columns[key].shown, "null in a key, which never equals another null")


def columns_to_empty(names: Sequence[str], columns: Mapping[str, Any]) -> list[str]:
    """Return the columns that have no default and that the rows lack."""
    return [name for name, column in columns.items() if name not in names and not column.has_default]


def dropped_rows_error(shown: str, sent: int, inserted: int) -> RefusedError:
    return RefusedError(
        f"a trigger of table {shown} drops rows: {sent} were sent, {inserted} were inserted; remove the trigger, then"
        " release the dataset with retry"
    )


def kept_rows_error(shown: str) -> RefusedError:
    return RefusedError(
        f"a trigger of table {shown} keeps rows that were to be deleted; remove the trigger, then release the dataset"
        " with retry"
    )


def with_tags(schema: pa.Schema, tags: Mapping[str, int]) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in tags)])


def tagged(batch: pa.RecordBatch, tags: Mapping[str, int]) -> pa.RecordBatch:
    for name, value in tags.items():
        batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows))
    return batch


def missing_columns(
    schema: pa.Schema, existing_columns: Mapping[str, Any], shown: str, *, add_columns: bool
) -> list[pa.Field]:
    """Return the columns to add to a table. Raises RefusedError if that is not allowed, or names differ only by
    case."""
    missing = [field for field in schema if field.name not in existing_columns]
    by_lower_name = {name.lower(): name for name in existing_columns}
    same = [field.name for field in missing if field.name.lower() in by_lower_name]
    if same:
        raise RefusedError(
            f"table {shown} has the column {by_lower_name[same[0].lower()]!r}, and the records have {same[0]!r}: rename"
            " theirs with the converter `rename`, and abandon the dataset; or rename the table's, then release the"
            " dataset with retry"
        )
    if missing and not add_columns:
        names = ", ".join(repr(field.name) for field in missing)
        of_order = any(field.name in ORDER_COLUMNS for field in missing)
        instead = ", or name a `version` column of the records" if of_order else ""
        raise RefusedError(
            f"table {shown} has no column {names}; add it, or set `evolve: add_columns`{instead}, then release the"
            " dataset with retry"
        )
    return missing


def new_identity() -> str:
    """Return a random text for the definition of a created table. ALTER TABLE keeps it; a recreated table has
    another."""
    return f"distcommit:{secrets.randbits(60):015x}"


def identity_in(definition: str) -> int:
    """Return the 60-bit number of `new_identity` from a table's definition; 0 if it has none."""
    mark = _IDENTITY.search(definition)
    return int(mark[1], 16) if mark else 0
