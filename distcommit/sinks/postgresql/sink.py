"""The sink of tables of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pydantic import Field

from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.targets import Target, database_address
from distcommit.core.records.fixed_settings import Pin
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.database_tls import check_postgresql_url
from distcommit.sinks.base.clients import committing_by, needing_client
from distcommit.sinks.base.table_names import table_name
from distcommit.sinks.databases.server_sink import ServerSink
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS, TableCommitter
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET

if TYPE_CHECKING:
    import psycopg

    from distcommit.sinks.postgresql.two_phase import TwoPhasePostgresql

MAX_NAME_BYTES = 63
"""The server cuts off longer names."""


class PostgresqlSink(ServerSink):
    """Rows go to tables of PostgreSQL.

    Attributes:
        schema: the schema of the tables.
        ledger_schema: the schema of the ledger; by default that of the tables. Several jobs may share a ledger.
    """

    schemes: ClassVar = ("postgresql",)

    type: Literal["postgresql"]
    schema_name: str = Field(default="public", alias="schema", min_length=1)
    ledger_schema: str = ""

    def check_options(self) -> None:
        check_postgresql_url(self.url, self.tls)

    def pins(self) -> Mapping[str, Pin]:
        """Return table, database and schemas. The server is not fixed, as servers may be renamed."""
        database = unquote(urlsplit(self.url).path.removeprefix("/"))
        ledger = self.ledger_schema or self.schema_name
        named = {"database": database, "schema": self.schema_name, "ledger_schema": ledger}
        return {**super().pins(), **{name: Pin(value, ANOTHER_TARGET) for name, value in named.items()}}

    @property
    def writes_to(self) -> str:
        return f"{super().writes_to}, schema {self.schema_name}"

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        ledgers = self.ledger_schema or self.schema_name
        names = (f"{self.schema_name}.{self.table_of(dataset_urn)}", f"{ledgers}.{LEDGER}", f"{ledgers}.{PROOFS}")
        return [Target("table", name, database_address(self.url)) for name in names]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        server = f"{self.server}{urlsplit(self.url).path}"
        return f"table {self.schema_name}.{self.table_of(dataset_urn)} of {server}"

    def table_of(self, dataset_urn: str) -> str:
        return table_name(self.table, dataset_urn, most_bytes=MAX_NAME_BYTES, taken=(LEDGER, PROOFS))

    def check_schema(self, schema: pa.Schema) -> None:
        """Check that tables can have these columns.

        Raises:
            ConfigurationError: as `TableSink.check_schema`; or if PostgreSQL has no type for a column, or would cut off
                its name.
        """
        with needing_client(self.type):
            from distcommit.sinks.postgresql.columns import NAMES, column_type  # noqa: PLC0415

        NAMES.check(schema.names)
        super().check_schema(schema)
        for field in schema:
            column_type(field)

    def open_committer(self, context: CommitterContext) -> TableCommitter:
        if self.two_phase:
            return self.open_two_phase(context)
        with needing_client(self.type):
            from distcommit.sinks.postgresql.committer import PostgresqlCommitter  # noqa: PLC0415

        return committing_by(self._connected(), lambda made: PostgresqlCommitter(made, self, context))

    def open_two_phase(self, context: CommitterContext) -> TwoPhasePostgresql:
        with needing_client(self.type):
            from distcommit.sinks.postgresql.two_phase import TwoPhasePostgresql  # noqa: PLC0415

        return committing_by(self._connected(), lambda made: TwoPhasePostgresql(made, self, context, self._connected))

    def _connected(self) -> psycopg.Connection:
        from distcommit.sinks.postgresql.connection import connected  # noqa: PLC0415

        return connected(self.url, self.password_text, self.tls)
