"""Base class of the settings of database sinks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Literal

import pyarrow as pa
from pydantic import ConfigDict, Field, field_validator
from xxhash import xxh3_64_intdigest

from distcommit.core.errors import ConfigurationError, DistcommitError, TransientError, error_text
from distcommit.core.interfaces.committer import CommitterContext, releasing
from distcommit.core.interfaces.constructs import RowChecker
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkSettings, SinkWriter, StagingArea
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.support.setting_checks import check_distinct
from distcommit.core.support.settings_model import SettingError, checks, rule
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.base.committer_sink import GroupsByTable, StoredName
from distcommit.sinks.base.table_names import DATASET, check_template
from distcommit.sinks.databases.mirrored_changes import DELETED_AT, ChangeCheck, is_operation_type
from distcommit.sinks.databases.newer_rows import ORDER_COLUMNS
from distcommit.sinks.databases.staged_rows import StagedRows
from distcommit.sinks.databases.table_committer import TableCommitter

_LOG_POSITION = "_position"
ANOTHER_TARGET = (
    "restore the old value, because committed rows and their ledger are at the old target; or give the job new folders"
    " (paths)"
)


class TableSink(StoredName, GroupsByTable, SinkSettings):
    """Tables of a database: one for each dataset, or one for all datasets.

    Attributes:
        table: the table's name; `{dataset}` in it stands for the dataset's URN. Without it all datasets share a table.
        mode: `append` inserts rows. `upsert` replaces the row with the same keys, unless that row is newer; of several
            new rows the last one counts. `mirror` applies changes: it upserts rows, or deletes the row with the same
            keys, as the column `operation` says. `replace` replaces all rows of the dataset by those that a run has
            read; it requires policy `full`, and excludes `limits.seconds`, optional branches and `dataset reprocess`.
        keys: columns that identify rows of the modes `upsert` and `mirror`, by default `source.extract.keys`. The table
            must have a unique index on them.
        version: column of integers, decimals, floats or times of the modes `upsert` and `mirror`, whose greater value
            is newer. Without it, rows are compared by their position in the source partition, for which the table has
            four more columns.
        operation: text column of mode `mirror`, which is not stored: `d` or `delete` deletes the row; `c`, `r`, `u`,
            `i`, `create`, `read`, `update`, `insert` or `upsert` inserts or replaces it. Other records are rejected.
        keep_deleted_days: days for which mode `mirror` remembers a deleted key. An older change of the key that is read
            within this time does not restore the row.
        tags: whether each row has two more columns with its dataset and epoch. Then a committed epoch can be taken
            back, and datasets that share a table can be replaced.
        create: whether missing tables are created.
        evolve: handling of columns that the table lacks: `none` refuses the rows; `add_columns` adds the columns, and
            widens integers and floats as the records require.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    table: str = DATASET
    mode: Literal["append", "upsert", "mirror", "replace"] = "append"
    keys: tuple[str, ...] = ()
    version: str = ""
    operation: str = Field(default="_op", min_length=1)
    keep_deleted_days: int = Field(default=30, ge=1, le=36_500)
    tags: bool = False
    create: bool = True
    evolve: Literal["none", "add_columns"] = "none"

    @checks("table")
    @classmethod
    def _is_template(cls, table: str) -> str:
        return check_template(table)

    _check_keys = field_validator("keys")(check_distinct)

    @rule
    def _fits_mode(self) -> Iterator[SettingError]:
        if self.by_keys and not self.keys:
            yield SettingError(f"must be set with mode: {self.mode}", "keys", remedy="set it, or source.extract.keys")
        if not self.by_keys and self.keys:
            yield SettingError("must only be set with mode: upsert or mirror", "keys")
        if not self.by_keys and self.version:
            yield SettingError("must only be set with mode: upsert or mirror", "version")
        elif self.version in self.keys:
            yield SettingError("must not be one of keys", "version")
        if self.by_keys and self.tags:
            yield SettingError(f"must not be true with mode: {self.mode}, which cannot be rolled back", "tags")
        if self.mode != "mirror":
            for name in sorted(self.model_fields_set & {"operation", "keep_deleted_days"}):
                yield SettingError("must only be set with mode: mirror", name)
        elif self.operation in (*self.keys, self.version):
            yield SettingError("must not be one of keys, nor version", "operation")
        if self.mode == "mirror" and self.shares_tables:
            yield SettingError(
                "must contain {dataset} with mode: mirror, because two sources of one table have no common order",
                "table",
            )
        if self.mode == "replace" and self.shares_tables and not self.tags:
            yield SettingError("must be true with mode: replace in a table that datasets share", "tags")

    @property
    def by_keys(self) -> bool:
        return self.mode in ("upsert", "mirror")

    @property
    def name(self) -> str:
        return self.name_of(f"{self.type}:{self.table}")

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        return {"table": FixedSetting(self.table, ANOTHER_TARGET)}

    @abstractmethod
    def table_of(self, dataset_urn: str) -> str: ...

    def deleted_table_of(self, dataset_urn: str) -> str:
        return self.model_copy(update={"table": f"distcommit_deleted_{self.table}"}).table_of(dataset_urn)

    @property
    def rejection_check(self) -> RowChecker | None:
        return ChangeCheck(self.keys, self.operation, self.version) if self.mode == "mirror" else None

    @property
    def version_warning(self) -> str:
        """A warning for `check_connection` if changes are ordered by the column `_position`; otherwise empty."""
        if self.mode != "mirror" or self.version != _LOG_POSITION:
            return ""
        return (
            f"\nsink.version is {_LOG_POSITION}, which loses changes of PostgreSQL: rows of a snapshot can have a"
            " greater position than changes that are committed later. If the source is PostgreSQL, remove sink.version"
        )

    def shown(self, table: str) -> str:
        return table

    def group_of(self, dataset_urn: str) -> str:
        return self.table_of(dataset_urn)

    @property
    def replaces_at_target(self) -> bool:
        return self.mode == "replace"

    @property
    def takes_back(self) -> bool:
        """Whether an epoch's rows can be deleted again."""
        return self.tags and self.mode == "append"

    def required_columns(self) -> Sequence[str]:
        operation = [self.operation] if self.mode == "mirror" else []
        return (*self.keys, *([self.version] if self.version else []), *operation)

    @property
    def has_order_columns(self) -> bool:
        return self.by_keys and not self.version

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise ConfigurationError if a key, version or operation column is missing or unsuitable, or a name is
        reserved."""
        names = schema.names
        wrong = [key for key in self.keys if key not in names]
        if wrong:
            raise ConfigurationError(
                "the records do not have a column that the setting keys names",
                id="SINK_COLUMN_INVALID",
                key="keys",
                column=wrong[0],
                found=f"columns {', '.join(names)}",
            )
        nested = [key for key in self.keys if self.mode == "mirror" and pa.types.is_nested(schema.field(key).type)]
        if nested:
            raise ConfigurationError(
                "a key column must have simple values",
                id="SINK_COLUMN_INVALID",
                key="keys",
                column=nested[0],
                found=str(schema.field(nested[0]).type),
                todo="convert it with the converter `flatten` or `cast`, or name another one",
            )
        if self.version and not _has_order(schema, self.version):
            raise ConfigurationError(
                "the version column must be an integer, a decimal, a float or a time",
                id="SINK_COLUMN_INVALID",
                key="version",
                column=self.version,
                found=str(schema.field(self.version).type) if self.version in names else "no such column",
                todo="convert it with the converter `cast`, or name another one",
            )
        if self.mode == "mirror" and not (
            self.operation in names and is_operation_type(schema.field(self.operation).type)
        ):
            raise ConfigurationError(
                "the operation column must be text",
                id="SINK_COLUMN_INVALID",
                key="operation",
                column=self.operation,
                found=str(schema.field(self.operation).type) if self.operation in names else "no such column",
                todo="add the converter `debezium`, or name a column that has the operation of each record",
            )
        wrong = [name for name in names if name.lower() in (*ORDER_COLUMNS, DELETED_AT)]
        if wrong:
            todo = "rename it with the converter `rename`"
            raise ConfigurationError(
                "this column name is reserved for the sink", id="SINK_COLUMN_INVALID", column=wrong[0], todo=todo
            )

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        ledger, with_order = self.ledger_of(attempt), self.has_order_columns
        operation = self.operation if self.mode == "mirror" else ""
        return StagedRows(area, origin, ledger, self.check_schema, with_positions=with_order, operation=operation)

    @abstractmethod
    def open_committer(self, context: CommitterContext) -> TableCommitter:
        """Open a committer, and create a missing ledger."""

    def ledger_of(self, attempt: AttemptIdentity) -> Callable[[], str]:
        """Return a function that returns the ledger's identity, or raises TransientError. A process caches the
        identities of the last 64 runs."""
        return partial(_ledger_of, self, attempt.store_id, attempt.run_id)


@lru_cache(maxsize=64)
def _ledger_of(sink: TableSink, store_id: str, run_id: str) -> str:
    try:
        with releasing(sink.open_committer(CommitterContext(LocalFileSystem(), "", "", store_id))) as committer:
            return committer.identity()
    except DistcommitError:
        raise
    except Exception as error:
        raise TransientError(
            "the identity of the ledger can't be read",
            id="TARGET_UNAVAILABLE",
            sink=sink.name,
            found=error_text(error),
            todo="a later attempt reads the ledger again; if the error persists, repair the database",
        ) from error


def _has_order(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type if name in schema.names else pa.null()
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number or (pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def tag_of(store_id: str, dataset_urn: str, branch: str) -> int:
    """Return the signed 64-bit value of the column `OF`."""
    return xxh3_64_intdigest("\0".join((store_id, branch, dataset_urn)).encode()) - (1 << 63)
