"""Tables of MariaDB as a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitterContext
from distcommit.fs.secret_files import with_secret_files
from distcommit.sinks.base.clients import committing_by, needing_client
from distcommit.sinks.databases.table_committer import TableCommitter
from distcommit.sinks.mariadb.columns import NAMES, column_type
from distcommit.sinks.mariadb.settings import MariadbTables

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from distcommit.sinks.mariadb.xa import XaMariadb


class MariadbSink(MariadbTables):
    """Rows go to tables of MariaDB, or of MySQL."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Raises:
        ConfigurationError: as `TableSink.check_schema`; or if MariaDB has no type for a column, or can't have its name.
        """
        NAMES.check(schema.names)
        super().check_schema(schema)
        with needing_client(self.type):
            import pymysql  # noqa: F401, PLC0415
        for field in schema:
            column_type(field, self.keys)

    def open_committer(self, context: CommitterContext) -> TableCommitter:
        if self.two_phase:
            return self.open_two_phase(context)
        with needing_client(self.type):
            from distcommit.sinks.mariadb.committer import MariadbCommitter  # noqa: PLC0415

        return committing_by(self._connected(), lambda made: MariadbCommitter(made, self, context))

    def open_two_phase(self, context: CommitterContext) -> XaMariadb:
        with needing_client(self.type):
            from distcommit.sinks.mariadb.xa import XaMariadb  # noqa: PLC0415

        return committing_by(self._connected(), lambda made: XaMariadb(made, self, context, self._connected))

    def _connected(self) -> Connection[Cursor]:
        from distcommit.sinks.mariadb.connection import connected  # noqa: PLC0415

        return connected(self.url, with_secret_files(self.password.get_secret_value()), self.tls)
