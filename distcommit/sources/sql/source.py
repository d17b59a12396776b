"""Tables of a database, and queries, as a source: which, by which column, from where, and the plan that follows from
it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.extract import Extract, TableType
from distcommit.core.interfaces.source import Planned, SourceSettings, SourceState, kept_incarnations
from distcommit.core.interfaces.targets import Target
from distcommit.core.records.fixed_settings import Pin
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.patterns import check_patterns
from distcommit.core.watermark import Position
from distcommit.fs.database_tls import Tls, check_mysql_url, check_postgresql_url
from distcommit.fs.secret_files import check_absolute, with_secret_files
from distcommit.sources.sql.loops import reads_table
from distcommit.sources.sql.positions import counts_in, position_problems
from distcommit.sources.sql.queries import check_condition, queries_of
from distcommit.sources.sql.rules import TableRules, Tables

if TYPE_CHECKING:
    from distcommit.sources.sql.database import Database
    from distcommit.sources.sql.extractor import SqlExtractor

_ANOTHER_DATABASE = (
    "put it back: positions in tables of another database, or schema, are those of other rows. To read these, give the"
    " job new folders (paths), and begin at source.start, or set watermarks by hand."
)


class TableOverrides(BaseModel):
    """What is different with one table or query. What it does not name is as with all of them.

    Attributes:
        watermark: the column whose values are positions.
        lookback: as that of the source.
        columns: the columns to read; all of them if it names none.
        where: a condition in the database's SQL over the table's columns; other rows are not read, now or later. As a
            query it only reads, and has no placeholders.
        keys: columns that together are different in each row, where the database does not know them: of a query or a
            view. Where `watermark` alone is, its greatest value is read without waiting for a greater one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    watermark: str = Field(default="", min_length=1)
    lookback: int | None = Field(default=None, ge=0, le=10**9)
    columns: tuple[str, ...] = ()
    where: str = ""
    keys: tuple[str, ...] = ()

    @field_validator("columns", "keys")
    @classmethod
    def _are_named_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("a column is named twice")
        return names


class SqlSource(BaseModel, SourceSettings):
    """Tables and views of one database, and queries. A dataset is one of them, named as it is; its positions are values
    of one column, or count snapshots.

    Attributes:
        type: `sql`.
        url: `postgresql://user@host:port/database`, `mysql://user@host:port/database` (MariaDB, too), or
            `sqlite:////absolute/path`. Further settings of the driver after a `?`. No password.
        password: the user's. `${file:PATH}` in it stands for what that file holds, read by each process that connects.
        tls: `verify` checks certificate and host name of a remote server, and of any server if the URL has an option of
            TLS. `insecure` accepts any certificate, and servers without TLS.
        schema: where the tables are; without it, where the connection looks by itself. A query names its own.
        tables: names of tables or views. One that does not exist is reported, in every run.
        table_patterns: regular expressions that match whole names of tables. No views, and in PostgreSQL no tables
            that are partitions, or inherit: those are read with their parent.
        exclude: names of tables to leave out, also if they are in `tables`.
        exclude_patterns: regular expressions, matching whole names, of tables to leave out.
        queries: queries by the names of their datasets, each a `SELECT` (or `WITH`) in the database's SQL that is read
            as a view of that name would be. One that is changed, but for space and comments, is not read until it is
            put back or `distcommit dataset set-watermark` says where it begins; a snapshot goes on.
        table_type: `append_only`, of rows that are only added, or `snapshot_append`, of rows that are changed, too, so
            that of several with the same key the newest counts: both are read in ranges of `watermark`.
            `snapshot_only`: each run reads all of each table anew, to be published by `sink.publish: replace`.
        watermark: the column whose values are positions: integers, text or timestamps that only grow. Rows are read
            in ranges of it, each once; one that is changed so that its value is a later one is read again, as it is
            then.
        lookback: how far the end of what is read stays behind, in seconds for timestamps, and as a number for
            integers: rows that commit late, with a lower value than others that are there already, are read if they
            come within it; later than that they are never read, and nobody can tell. 0 only where rows are committed
            in the order of their values. Timestamps are read before the present second; of coarser ones the group of
            the present may still grow, so at least 60 of minutes, 86400 of days. For text there is only 0.
        times_end: where a run stops in a column of timestamps. `clock`: before the database's present second, less the
            lookback; rows that are inserted later with earlier times are never read. `newest`: before the greatest
            value there is, less the lookback, so that rows of that value wait for a greater one.
        overrides: what is different with single tables and queries, by name.
        start: where tables begin that were never read: `earliest`, or `latest` for what comes from now on.
        records_per_work_unit: about how many rows a work unit has: a range of the column, which a task reads. A
            snapshot is one.
        records_per_dataset: about how many rows of a table one run reads, 0 for all. Those of one value are read
            together.
        batch_rows: how many rows are in memory at once; those of one value are, however many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, ignored_types=(cached_property,))

    type: Literal["sql"]
    url: str
    password: SecretStr = SecretStr("")
    tls: Tls = "verify"
    schema_name: str | None = Field(default=None, alias="schema", min_length=1)
    tables: tuple[str, ...] = ()
    table_patterns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    queries: dict[str, str] = Field(default_factory=dict)
    table_type: Literal["append_only", "snapshot_append", "snapshot_only"] = "append_only"
    watermark: str = ""
    lookback: int | None = Field(default=None, ge=0, le=10**9)
    overrides: dict[str, TableOverrides] = Field(default_factory=dict)
    times_end: Literal["clock", "newest"] = "clock"
    start: Literal["earliest", "latest"] = "earliest"
    records_per_work_unit: int = Field(default=1_000_000, ge=1)
    records_per_dataset: int = Field(default=0, ge=0)
    batch_rows: int = Field(default=10_000, ge=1)

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "mysql", "sqlite"):
            raise ValueError("begins with postgresql://, mysql:// or sqlite:////")
        if parts.password is not None or any("pass" in key.lower() for key in parse_qs(parts.query)):
            raise ValueError("has no password in it: that is source.password")
        if parts.scheme == "sqlite" and (parts.netloc or not re.match(r"//[^/]", parts.path) or parts.query):
            raise ValueError("names a SQLite file by its absolute path: sqlite:////path, and nothing else")
        if parts.scheme != "sqlite" and (parts.port == 0 or not parts.path.strip("/")):
            raise ValueError(f"names a database: {parts.scheme}://user@host:port/database")
        return url

    @field_validator("password")
    @classmethod
    def _is_absolute(cls, password: SecretStr) -> SecretStr:
        check_absolute(password.get_secret_value(), "password")
        return password

    _compile = field_validator("table_patterns", "exclude_patterns")(check_patterns)

    @model_validator(mode="after")
    def _options_are_known(self) -> SqlSource:
        if self._dialect == "mysql":
            check_mysql_url(self.url, self.tls)
        elif self._dialect == "postgresql":
            check_postgresql_url(self.url, self.tls)
        return self

    @model_validator(mode="after")
    def _has_tables(self) -> SqlSource:
        if not self.tables and not self.table_patterns and not self.queries:
            raise ValueError("tables, table_patterns or queries must name at least one table or query")
        selection = self.selection
        if twice := [name for name in self.queries if name in self.tables and selection.has_table(name)]:
            raise ValueError(f"tables and queries have the same names, and so the same datasets: {', '.join(twice)}")
        if unknown := [name for name in self.overrides if name not in selection]:
            raise ValueError(f"overrides names tables that are not read: {', '.join(unknown)}")
        for name, other in self.overrides.items():
            try:
                check_condition(other.where, self._dialect)
            except ValueError as error:
                raise ValueError(f"overrides.{name}.where {error}") from None
        return self

    @model_validator(mode="after")
    def _is_read_by_a_column_or_whole(self) -> SqlSource:
        if not self.is_snapshot and (not self.watermark or self.lookback is None):
            raise ValueError(f"table_type: {self.table_type} goes with watermark and lookback")
        by_column = [(each.watermark, each.lookback) for each in self.overrides.values()]
        if self.is_snapshot and {(self.watermark, self.lookback), *by_column} != {("", None)}:
            raise ValueError("table_type: snapshot_only goes without watermark and lookback")
        if self.is_snapshot and (self.records_per_dataset or self.start != "earliest"):
            raise ValueError("table_type: snapshot_only goes without records_per_dataset and start: all is read")
        return self

    @property
    def is_snapshot(self) -> bool:
        return self.table_type == "snapshot_only"

    @property
    def reads_whole(self) -> bool:
        return self.is_snapshot

    @property
    def reads_again(self) -> bool:
        return not self.is_snapshot

    def pins(self) -> Mapping[str, Pin]:
        """Where the tables are: the database by its name (a file of SQLite by its path), since servers may be renamed,
        and the schema. The watermark column is in each dataset's watermark, as its incarnation, and so is a query."""
        return {
            "database": Pin(unquote(urlsplit(self.url).path.removeprefix("/")), _ANOTHER_DATABASE),
            "schema": Pin(self.schema_name or "", _ANOTHER_DATABASE),
        }

    def selects(self, dataset_urn: str, partition: str) -> bool:
        return dataset_urn in self.selection

    def reads(self, target: Target) -> bool:
        return reads_table(target, self.url, self.schema_name, self.selection)

    @property
    def apart_hint(self) -> str:
        needs_schema = self._dialect == "postgresql" and not self.schema_name
        return "set source.schema if the source reads another schema" if needs_schema else ""

    @property
    def named_datasets(self) -> Sequence[str]:
        return (*self.tables, *self.queries)

    def extract_of(self, dataset_urn: str) -> Extract:
        """By the settings. Work units know the primary key, too."""
        column = self.selection.rules_of(dataset_urn).watermark
        namespace = self.schema_name or unquote(urlsplit(self.url).path.removeprefix("/"))
        return Extract(namespace, dataset_urn, TableType(self.table_type), (), (column,) if column else ())

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        """Plans owned tables that are idle and have something new, on one connection.

        A table's problem is its own: it is reported, and the others are planned. So are rows without a value in the
        watermark column, beside the plan of the others.

        Raises:
            TransientError: if the server can't be reached, or goes away meanwhile.
            ConfigurationError: if SQLAlchemy or the database's driver is missing.
        """
        database = self._database()
        from distcommit.sources.sql.planning import plan_tables  # noqa: PLC0415 - a job file is read without SQLAlchemy

        def wanted(table: str) -> bool:
            state = states.get(table)
            return owned(table) and (state is None or state.status is DatasetStatus.IDLE)

        try:
            yield from plan_tables(database, self, wanted, states)
        finally:
            database.close()

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """The column and query of the stored positions, unless the job file has others by now."""
        rules = {urn: self.selection.rules_of(urn) for urn in states}
        return {
            urn: kept
            for urn, kept in kept_incarnations(states, {}).items()
            if counts_in(kept, rules[urn].watermark, rules[urn].query_id)
        }

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Values by table of the job; what a table's column really holds the next plan sees."""
        return position_problems(datasets, self.selection)

    def open(self) -> SqlExtractor:
        """An extractor that connects with its first work unit.

        Raises:
            ConfigurationError: if SQLAlchemy or the database's driver is missing.
        """
        database = self._database()
        from distcommit.sources.sql.extractor import SqlExtractor  # noqa: PLC0415 - a job file is read without SQLAlchemy

        return SqlExtractor(database, self.selection, self.batch_rows)

    @cached_property
    def selection(self) -> Tables:
        """The tables and queries of the job, and how each is read. Made once: it is asked for with each of them."""
        lookback, queries = self.lookback or 0, queries_of(self.queries, self._dialect)
        to_newest = self.times_end == "newest"
        rules = TableRules(self.watermark, lookback, to_newest=to_newest)
        overrides = {
            name: TableRules(
                other.watermark or self.watermark,
                lookback if other.lookback is None else other.lookback,
                other.columns,
                other.where,
                other.keys,
                queries.get(name),
                to_newest,
            )
            for name, other in {**dict.fromkeys(queries, TableOverrides()), **self.overrides}.items()
        }
        patterns, exclude = self.table_patterns, self.exclude
        return Tables(self.schema_name, self.tables, patterns, exclude, self.exclude_patterns, rules, overrides)

    @property
    def _dialect(self) -> str:
        return urlsplit(self.url).scheme

    def _database(self) -> Database:
        try:
            from distcommit.sources.sql.database import Database  # noqa: PLC0415 - an extra of its own
        except ImportError as error:
            raise ConfigurationError(
                "the SQL source needs SQLAlchemy",
                found=str(error),
                todo="pip install 'distcommit[sql-source]', also where the executors run",
            ) from error
        return Database(self.url, with_secret_files(self.password.get_secret_value()), self.tls)
