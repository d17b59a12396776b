"""What the sections of all sinks have in common that put rows into a database's tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator
from xxhash import xxh3_64_intdigest

from distcommit.core.errors import ConfigurationError, DistcommitError, TransientError, error_text
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import Abilities, AttemptIdentity, Origin, SinkSettings, SinkWriter, StagingArea
from distcommit.core.records.fixed_settings import Pin
from distcommit.fs.database_tls import Tls
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.fs.secret_files import check_absolute
from distcommit.sinks.base.stored_names import StoredName
from distcommit.sinks.base.table_groups import GroupsByTable
from distcommit.sinks.base.table_names import DATASET, check_template
from distcommit.sinks.databases.newest_row import ORDER_COLUMNS
from distcommit.sinks.databases.prepared_rows import PreparedRows, Preparing
from distcommit.sinks.databases.staged_rows import StagedRows
from distcommit.sinks.databases.table_committer import TableCommitter

ANOTHER_TARGET = (
    "put it back: what was committed, and the ledger that says so, are at the old one. For a new target give the job"
    " new folders (paths)"
)


class TableSink(StoredName, GroupsByTable, SinkSettings):
    """Rows go to a table for each dataset, or to one for all.

    Attributes:
        table: the table's name; `{dataset}` in it stands for the dataset's URN. Without it all datasets share a table.
        mode: `append` adds rows. `upsert` puts each in the place of the one with the same keys, unless that is newer;
            of several the last one stays. `replace` puts what a run has read in the place of all that is there of the
            dataset: it goes with policy `full`, and with neither `limits.seconds`, optional branches nor `dataset
            reprocess`.
        keys: of `upsert`, the columns that tell rows apart, on which the table has a unique index.
        version: of `upsert`, the column of integers, decimals, floats or times whose greater value is newer. Without
            it a row's position in its source partition says so, for which the table has four columns more.
        tags: whether each row says where it is from, in two columns more. So a committed epoch can be taken back, and
            datasets that share a table can be replaced.
        create: whether tables that are missing are made.
        evolve: what is done with a column that the table does not have: `none` refuses the rows, `add_columns` adds it,
            and makes integers and floats longer where the records' are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    table: str = DATASET
    mode: Literal["append", "upsert", "replace"] = "append"
    keys: tuple[str, ...] = ()
    version: str = ""
    tags: bool = False
    create: bool = True
    evolve: Literal["none", "add_columns"] = "none"

    @field_validator("table")
    @classmethod
    def _is_template(cls, table: str) -> str:
        return check_template(table)

    @model_validator(mode="after")
    def _fits_together(self) -> TableSink:
        if (self.mode == "upsert") != bool(self.keys):
            raise ValueError("`keys` names the columns of mode `upsert`, and of no other")
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("`keys` names a column twice")
        if self.version and (self.mode != "upsert" or self.version in self.keys):
            raise ValueError("`version` goes with mode `upsert`, and is none of its `keys`")
        if self.mode == "upsert" and self.tags:
            raise ValueError("`tags` goes with append and replace: an upsert leaves nothing that could be taken back")
        if self.mode == "replace" and self.shares_tables and not self.tags:
            raise ValueError("to replace datasets in a table that they share needs `tags: true`")
        return self

    @property
    def name(self) -> str:
        return self.name_of(f"{self.type}:{self.table}")

    def pins(self) -> Mapping[str, Pin]:
        return {"table": Pin(self.table, ANOTHER_TARGET)}

    @abstractmethod
    def table_of(self, dataset_urn: str) -> str:
        """The table of a dataset."""

    def shown(self, table: str) -> str:
        return table

    def group_of(self, dataset_urn: str) -> str:
        return self.table_of(dataset_urn)

    @property
    def replaces_at_target(self) -> bool:
        return self.mode == "replace"

    @property
    def takes_back(self) -> bool:
        """Whether the rows of an epoch can be told from all others."""
        return self.tags and self.mode == "append"

    def asked_columns(self) -> Sequence[str]:
        return (*self.keys, *([self.version] if self.version else []))

    @property
    def has_order_columns(self) -> bool:
        """Whether rows go to tables with columns that say which of two is newer."""
        return self.mode == "upsert" and not self.version

    def check_schema(self, schema: pa.Schema) -> None:
        """Raises:
        ConfigurationError: if keys are missing, or a column has a name that tags have. Names are checked before.
        """
        names = schema.names
        wrong = [key for key in self.keys if key not in names]
        if wrong:
            raise ConfigurationError("there is no such column", key="keys", column=wrong[0], found=", ".join(names))
        if self.version and not _has_order(schema, self.version):
            raise ConfigurationError(
                "the version column must be an integer, a decimal, a float or a time",
                key="version",
                column=self.version,
                found=str(schema.field(self.version).type) if self.version in names else "no such column",
                todo="convert it with the converter `cast`, or name another one",
            )
        wrong = [name for name in names if name.lower() in ORDER_COLUMNS]
        if wrong:
            todo = "rename it with the converter `rename`"
            raise ConfigurationError("a table can't have this column", column=wrong[0], todo=todo)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        ledger, with_order = self.ledger_of(attempt), self.has_order_columns
        return StagedRows(area, origin, ledger, self.check_schema, with_positions=with_order)

    @abstractmethod
    def open_committer(self, context: CommitterContext) -> TableCommitter:
        """A committer for one batch of requests, which has made the ledger if it was missing."""

    def ledger_of(self, attempt: AttemptIdentity) -> Callable[[], str]:
        """What asks for the identity of the ledger that an attempt's rows are committed by: the database once in each
        process and run.

        Raises:
            ConfigurationError: as its committer does.
            TransientError: if the database can't be asked.
        """
        return partial(_ledger_of, self, attempt.store_id, attempt.run_id)


class ServerSink(TableSink):
    """Tables of a database that a server has.

    Attributes:
        url: the database, without a password.
        password: as the server wants it; `${file:/path}` is read where it is used.
        tls: `verify` checks certificate and host name of a remote server, and of any server if the URL has an option of
            TLS. `insecure` accepts any certificate, and servers without TLS.
        two_phase: whether writers put rows into tables, in transactions that they prepare, and the commit has the
            server commit these. One for each work unit: readers may see a part of a dataset that has several. Goes with
            mode `append`.
    """

    url: str
    password: SecretStr = Field(default=SecretStr(""))
    tls: Tls = "verify"
    two_phase: bool = False

    @field_validator("url")
    @classmethod
    def _has_no_password(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.password is not None or any("pass" in key.lower() for key in parse_qs(parts.query)):
            raise ValueError("has no password in it: that is sink.password")
        if parts.port == 0 or not parts.path.strip("/"):
            raise ValueError("names a database: TYPE://user@host:port/database")
        return url

    @field_validator("password")
    @classmethod
    def _is_absolute(cls, password: SecretStr) -> SecretStr:
        check_absolute(password.get_secret_value(), "password")
        return password

    @model_validator(mode="after")
    def _can_be_prepared(self) -> ServerSink:
        if self.two_phase and self.mode != "append":
            raise ValueError(
                "`two_phase` goes with mode `append`: what is prepared holds locks until it is committed, so that work"
                " units which change the same rows would wait for each other"
            )
        if self.two_phase and self.evolve != "none":
            raise ValueError(
                "`two_phase` goes with `evolve: none`: a table is not altered as long as something is prepared for it"
            )
        return self

    @property
    def name(self) -> str:
        return self.name_of(f"{self.type}-two-phase:{self.table}") if self.two_phase else super().name

    @property
    def writes_to(self) -> str:
        return f"tables {self.table} of {self.url}"

    @property
    def abilities(self) -> Abilities:
        return Abilities(audit=True, atomic=not self.two_phase)

    @property
    def discards(self) -> bool:
        return self.two_phase

    @property
    def leaves_in_doubt(self) -> bool:
        return self.two_phase

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        """A writer, once the server is such that it can write.

        Raises:
            ConfigurationError: if the server can't prepare transactions, or the attempt does not say of which store it
                is.
            FencedError: if a newer run writes there.
        """
        if not self.two_phase:
            return super().open_writer(attempt, area, origin)
        if not attempt.store_id:
            raise ConfigurationError(
                "what is prepared is of a store, and the attempt names none",
                dataset=attempt.dataset_urn,
                attempt=attempt.attempt,
                todo="give the flow, or the attempt's identity, its `store_id`",
            )
        _begun(self, attempt.store_id, attempt.run_id, attempt.epoch)
        return PreparedRows(self.open_two_phase, attempt, area, origin, self.ledger_of(attempt), self.check_schema)

    @abstractmethod
    def open_two_phase(self, context: CommitterContext) -> Preparing:
        """What prepares, commits and rolls back. Raises as `open_committer`."""


@lru_cache(maxsize=64)
def _ledger_of(sink: TableSink, store_id: str, run_id: str) -> str:
    try:
        with closing(sink.open_committer(CommitterContext(LocalFileSystem(), "", "", store_id))) as committer:
            return committer.identity()
    except DistcommitError:
        raise
    except Exception as error:
        raise TransientError(
            "the ledger can't be asked which one it is",
            sink=sink.name,
            found=error_text(error),
            todo="nothing now: another attempt asks it; if that goes on, mend the database",
        ) from error


@lru_cache(maxsize=64)
def _begun(sink: ServerSink, store_id: str, run_id: str, epoch: int) -> None:
    """Tells the server of a run whose writers come, once in each process."""
    with closing(sink.open_two_phase(CommitterContext(LocalFileSystem(), "", "", store_id))) as preparing:
        preparing.begin(epoch)


def _has_order(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type if name in schema.names else pa.null()
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number or (pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def tag_of(store_id: str, dataset_urn: str, branch: str) -> int:
    """The tag `OF` of rows: signed, of 64 bits."""
    return xxh3_64_intdigest("\0".join((store_id, branch, dataset_urn)).encode()) - (1 << 63)
