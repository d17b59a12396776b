"""Settings of the source `sql`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.source import Planned, SourceState, stored_incarnations
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.install_command import install_command
from distcommit.core.support.setting_checks import check_distinct, check_patterns
from distcommit.core.support.settings_model import SettingError, SettingsModel, checks, errors_of, rule
from distcommit.core.watermark import Position
from distcommit.fs.database_credentials import checking_credentials
from distcommit.fs.database_tls import Tls, check_no_password, check_url_options
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.sources.described_source import DescribedSource
from distcommit.sources.query_checks import check_condition, queries_of
from distcommit.sources.sql.table_selection import TableRules, Tables, is_incarnation_of, position_problems, reads_table

if TYPE_CHECKING:
    from distcommit.sources.sql.database_connections import Database
    from distcommit.sources.sql.extractor import SqlExtractor

_ANOTHER_DATABASE = (
    "restore the old database and schema, because positions count rows of their tables; or give the job new folders"
    " (paths), where it begins at source.start"
)


class TableOverrides(SettingsModel):
    """Settings of one table or query that differ from the source's.

    Attributes:
        watermark: the watermark column.
        lookback: as `lookback` of the source.
        columns: columns to read; all if it is empty.
        where: a condition in the database's SQL on the table's columns; other rows are never read. It must only read,
            and have no placeholders.
        keys: columns that are unique together, for queries and views, whose keys the database does not know. If
            `watermark` is the only one, its greatest value is read without waiting for a greater one.
    """

    watermark: str = Field(default="", min_length=1)
    lookback: int | None = Field(default=None, ge=0, le=10**9)
    columns: tuple[str, ...] = ()
    where: str = ""
    keys: tuple[str, ...] = ()

    _check_names = field_validator("columns", "keys")(check_distinct)


class SqlSource(DescribedSource):
    """Tables, views and queries of one database. Each is a dataset of its name; positions are values of one column, or
    numbers of snapshots.

    Attributes:
        type: `sql`.
        url: `postgresql://user@host:port/database`, `mysql://user@host:port/database` (MariaDB, too), or
            `sqlite:////absolute/path`. Settings of the driver may follow after a `?`. No password.
        password: password of the user. `${file:PATH}` is replaced by that file's content, read by each process that
            connects.
        tls: `verify` checks certificate and host name of a remote server, and of any server if the URL has an option of
            TLS. `insecure` accepts any certificate, and servers without TLS.
        schema: schema of the tables; by default the connection's own. Queries name their schemas themselves.
        tables: names of tables or views. A missing one is reported in every run.
        table_patterns: regular expressions of whole names of tables. They match no views, and in PostgreSQL no
            partitions and inheriting tables, which are read with their parent.
        exclude: names of tables to exclude, even if they are in `tables`.
        exclude_patterns: regular expressions of whole names of tables to exclude.
        queries: queries by dataset name, each a `SELECT` (or `WITH`) in the database's SQL that is read like a view of
            that name. A changed query, except for white space and comments, is not read until it is restored or
            `distcommit dataset set-watermark` sets its start; a snapshot continues.
        table_type: `append_only` for tables whose rows are only added; `snapshot_append` for rows that are also
            changed. Each change is read as one more row; `mode: upsert` of a database sink keeps the newest row of a
            key. Both are read in ranges of `watermark`. `snapshot_only`: each run reads the whole table, to be
            published by `sink.publish: replace`.
        watermark: the column whose values are positions: integers, text or timestamps that only grow. Each row is read
            once, in a range of the column. A row that is changed and gets a later value is read again.
        lookback: distance between the newest value and the end of the range, in seconds for timestamps, as a number for
            integers. Rows that commit late with a lower value are read if they are within it; otherwise they are
            silently never read. Use 0 only if rows commit in the order of their values. Timestamps are read before the
            present second; coarser ones need at least 60 for minutes, 86400 for days, because the present group may
            still grow. For text it must be 0.
        times_end: end of a range of timestamps. `clock`: the database's present second, less the lookback; rows that
            are inserted later with earlier times are never read. `newest`: the greatest value, less the lookback, so
            that rows of that value wait for a greater one.
        overrides: settings of single tables and queries, by name.
        start: start of tables that were never read: `earliest`, or `latest` for rows from now on.
        records_per_work_unit: approximate rows of a work unit, a range that one task reads. A snapshot is one work
            unit.
        records_per_dataset: approximate rows of a table that one run reads, 0 for all. Rows of one value are read
            together.
        batch_rows: rows in memory at once; more if more rows have one value.
    """

    model_config = ConfigDict(hide_input_in_errors=True, ignored_types=(cached_property,))
    size_unit: ClassVar[Literal["", "records", "bytes"]] = "records"
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

    @checks("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "mysql", "sqlite"):
            raise SettingError("must begin with postgresql://, mysql:// or sqlite:////")
        check_no_password(url, "source")
        if parts.scheme == "sqlite" and (parts.netloc or not re.match(r"//[^/]", parts.path) or parts.query):
            raise SettingError("must name a SQLite file by its absolute path only: sqlite:////path")
        if parts.scheme != "sqlite" and (parts.port == 0 or not parts.path.strip("/")):
            raise SettingError(f"must name a database: {parts.scheme}://user@host:port/database")
        return url

    _check_files = field_validator("password")(check_secret_files)
    _compile = field_validator("table_patterns", "exclude_patterns")(check_patterns)

    @rule
    def _url_options_are_valid(self) -> Iterator[SettingError]:
        yield from errors_of(partial(check_url_options, self.url, self.tls), "url")

    @rule
    def _has_tables(self) -> Iterator[SettingError]:
        if not self.tables and not self.table_patterns and not self.queries:
            yield SettingError("must name at least one table or query", remedy="set tables, table_patterns or queries")
            return
        selection = self.selection
        for name in self.queries:
            if name in self.tables and selection.has_table(name):
                yield SettingError("must have another name than each table", "queries", name)
        for name, other in self.overrides.items():
            if name not in selection:
                yield SettingError("must be the name of a table or query of the source", "overrides", name)
            yield from errors_of(partial(check_condition, other.where, self._dialect), "overrides", name, "where")

    @rule
    def _has_watermark_unless_snapshot(self) -> Iterator[SettingError]:
        if not self.is_snapshot:
            for name, value in (("watermark", self.watermark or None), ("lookback", self.lookback)):
                if value is None:
                    yield SettingError(f"must be set with table_type: {self.table_type}", name)
            return
        reason = "must not be set with table_type: snapshot_only"
        defaults = {"watermark": "", "lookback": None, "records_per_dataset": 0, "start": "earliest"}
        yield from (SettingError(reason, name) for name, unset in defaults.items() if getattr(self, name) != unset)
        for table, table_overrides in self.overrides.items():
            for name in ("watermark", "lookback"):
                if getattr(table_overrides, name) not in ("", None):
                    yield SettingError(reason, "overrides", table, name)

    @property
    def is_snapshot(self) -> bool:
        return self.table_type == "snapshot_only"

    @property
    def reads_whole_units(self) -> bool:
        return self.is_snapshot

    @property
    def supports_retry_ranges(self) -> bool:
        return not self.is_snapshot

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return database (path of a SQLite file) and schema, because servers may be renamed. Incarnations contain
        watermark column and query."""
        return {
            "database": FixedSetting(unquote(urlsplit(self.url).path.removeprefix("/")), _ANOTHER_DATABASE),
            "schema": FixedSetting(self.schema_name or "", _ANOTHER_DATABASE),
        }

    def selects(self, dataset_urn: str, partition: str) -> bool:
        return dataset_urn in self.selection

    def reads(self, target: Target) -> bool:
        return reads_table(target, self.url, self.schema_name, self.selection)

    @property
    def false_match_hint(self) -> str:
        needs_schema = self._dialect == "postgresql" and not self.schema_name
        return "set source.schema if the source reads another schema" if needs_schema else ""

    @property
    def named_datasets(self) -> Sequence[str]:
        return (*self.tables, *self.queries)

    def extract_of(self, dataset_urn: str) -> Extract:
        column = self.selection.rules_of(dataset_urn).watermark
        namespace = self.schema_name or unquote(urlsplit(self.url).path.removeprefix("/"))
        kind = TableType(self.table_type)
        return self.described(Extract(namespace, dataset_urn, kind, (), (column,) if column else ()))

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        """Plan owned, idle tables that have new rows, on one connection.

        A table's problem is reported, and the others are planned. Rows without a value in the watermark column are a
        problem of a table that is planned nevertheless. Rows that are left for later runs are counted
        (`DeferredRecords`).

        Raises:
            TransientError: if the server can't be reached, or the connection breaks.
            ConfigurationError: if SQLAlchemy or the database's driver is missing.
        """
        database = self._database()
        from distcommit.sources.sql.plan_tables import plan_tables  # noqa: PLC0415 - a job file is read without SQLAlchemy

        def predicate(table: str) -> bool:
            state = states.get(table)
            return owned(table) and (state is None or state.status is DatasetStatus.IDLE)

        try:
            yield from plan_tables(database, self, predicate, states)
        finally:
            database.close()

    def check_connection(self) -> str:
        database = self._database()
        from distcommit.sources.sql.plan_tables import describe_tables  # noqa: PLC0415 - a job file is read without SQLAlchemy

        with checking_credentials():
            return describe_tables(database, self.selection, self.table_type)

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """Return stored incarnations whose column and query are those of the job file."""
        rules = {urn: self.selection.rules_of(urn) for urn in states}
        return {
            urn: stored
            for urn, stored in stored_incarnations(states, {}).items()
            if is_incarnation_of(stored, rules[urn].watermark, rules[urn].query_id)
        }

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Yield the problems of positions that no column can have. Only planning compares them with the column."""
        return position_problems(datasets, self.selection)

    def open(self) -> SqlExtractor:
        """Return an extractor that connects at its first work unit.

        Raises:
            ConfigurationError: if SQLAlchemy or the database's driver is missing.
        """
        database = self._database()
        from distcommit.sources.sql.extractor import SqlExtractor  # noqa: PLC0415 - a job file is read without SQLAlchemy

        return SqlExtractor(database, self.selection, self.batch_rows)

    @cached_property
    def selection(self) -> Tables:
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
            from distcommit.sources.sql.database_connections import Database  # noqa: PLC0415 - an extra of its own
        except ImportError as error:
            raise ConfigurationError(
                "the SQL source needs SQLAlchemy",
                id="PACKAGE_MISSING",
                found=str(error),
                todo=f"run `{install_command('sql-source')}` on the driver and on all executors",
            ) from error
        return Database(self.url, with_secret_files(self.password.get_secret_value()), self.tls)
