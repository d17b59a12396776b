"""The sink of tables of PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitterContext
from distcommit.sinks.base.clients import committing_by, needing_client
from distcommit.sinks.databases.table_committer import TableCommitter
from distcommit.sinks.postgresql.settings import PostgresqlSettings

if TYPE_CHECKING:
    import psycopg

    from distcommit.sinks.postgresql.two_phase import TwoPhasePostgresql


class PostgresqlSink(PostgresqlSettings):
    """Rows go to tables of PostgreSQL."""

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

    def check_connection(self) -> str:
        with needing_client(self.type), closing(self._connected()):
            return f"{self.server} accepts the user"

    def open_two_phase(self, context: CommitterContext) -> TwoPhasePostgresql:
        with needing_client(self.type):
            from distcommit.sinks.postgresql.two_phase import TwoPhasePostgresql  # noqa: PLC0415

        return committing_by(self._connected(), lambda made: TwoPhasePostgresql(made, self, context, self._connected))

    def _connected(self) -> psycopg.Connection:
        from distcommit.sinks.postgresql.connection import connected  # noqa: PLC0415

        return connected(self.url, self.password_text, self.tls)
