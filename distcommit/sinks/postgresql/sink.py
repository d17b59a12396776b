"""Tables of PostgreSQL as a sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pydantic import Field, field_validator

from distcommit.fs.secret_files import with_secret_files
from distcommit.model.committer import CommitterContext, SinkCommitter
from distcommit.model.errors import ConfigurationError
from distcommit.model.pins import Pin
from distcommit.model.work import MAIN_BRANCH
from distcommit.sinks.table_names import table_name
from distcommit.sinks.table_sink import ANOTHER_TARGET, LEDGER, ServerSink

_MAX_NAME_BYTES = 63


class PostgresqlSink(ServerSink):
    """Rows go to tables of PostgreSQL.

    Attributes:
        schema: the schema that the tables are in.
        ledger_schema: the schema that the ledger is in; that of the tables if it is not said. Jobs may share one.
    """

    type: Literal["postgresql"]
    schema_name: str = Field(default="public", alias="schema", min_length=1)
    ledger_schema: str = ""

    @field_validator("url")
    @classmethod
    def _is_postgresql(cls, url: str) -> str:
        if urlsplit(url).scheme != "postgresql":
            raise ValueError("begins with postgresql://")
        return url

    def pins(self) -> Mapping[str, Pin]:
        """Where rows and ledger are: the database by its name, as servers may be renamed, the schemas and the table."""
        database = unquote(urlsplit(self.url).path.removeprefix("/"))
        ledger = self.ledger_schema or self.schema_name
        named = {"database": database, "schema": self.schema_name, "ledger_schema": ledger}
        return {**super().pins(), **{name: Pin(value, ANOTHER_TARGET) for name, value in named.items()}}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        parts = urlsplit(self.url)
        server = f"{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"table {self.schema_name}.{self.table_of(dataset_urn)} of {server}"

    def check_schema(self, schema: pa.Schema) -> None:
        """Raises:
        ConfigurationError: as `TableSink.check_schema`; or if PostgreSQL has no type for a column, or would shorten
            its name.
        """
        super().check_schema(schema)
        _check_driver()
        from distcommit.sinks.postgresql.columns import column_type  # noqa: PLC0415 - an extra of its own

        for field in schema:
            column_type(field)
            if len(field.name.encode()) > _MAX_NAME_BYTES:
                todo = "rename it with the converter `rename`"
                raise ConfigurationError("PostgreSQL would shorten a column's name", column=field.name, todo=todo)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        _check_driver()
        from distcommit.sinks.postgresql.committer import PostgresqlCommitter  # noqa: PLC0415
        from distcommit.sinks.postgresql.connection import connected  # noqa: PLC0415

        connection = connected(self.url, with_secret_files(self.password.get_secret_value()))
        try:
            return PostgresqlCommitter(connection, self, context)
        except BaseException:
            connection.close()
            raise

    def table_of(self, dataset_urn: str) -> str:
        """The table of a dataset."""
        return table_name(self.table, dataset_urn, most_bytes=_MAX_NAME_BYTES, taken=(LEDGER,))


def _check_driver() -> None:
    try:
        import pgpq  # noqa: F401, PLC0415 - an extra of its own
        import psycopg  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "the PostgreSQL sink's driver is missing",
            found=str(error),
            todo="pip install 'distcommit[postgresql]', also where the executors run",
        ) from error
