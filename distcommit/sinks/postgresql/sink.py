"""The sink of PostgreSQL tables."""

from __future__ import annotations

import pyarrow as pa

from distcommit.sinks.base.target_connections import needing_client
from distcommit.sinks.databases.server_sink import Driver
from distcommit.sinks.postgresql.settings import PostgresqlSettings


class PostgresqlSink(PostgresqlSettings):
    """Tables of a PostgreSQL database."""

    def check_schema(self, schema: pa.Schema) -> None:
        with needing_client(self.type):
            from distcommit.sinks.postgresql.columns import NAMES, column_type  # noqa: PLC0415

        NAMES.check(schema.names)
        super().check_schema(schema)
        for field in schema:
            column_type(field)

    def driver(self) -> Driver:
        from distcommit.sinks.postgresql.committer import PostgresqlCommitter, require_rights  # noqa: PLC0415
        from distcommit.sinks.postgresql.sessions import POOLED  # noqa: PLC0415
        from distcommit.sinks.postgresql.two_phase import TwoPhasePostgresql, require_prepared  # noqa: PLC0415

        return Driver(POOLED, PostgresqlCommitter, TwoPhasePostgresql, require_prepared, require_rights)
