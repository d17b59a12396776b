"""Tables of MariaDB as a sink."""

from __future__ import annotations

import pyarrow as pa

from distcommit.fs.secret_files import with_secret_files
from distcommit.model.committer import CommitterContext, SinkCommitter
from distcommit.model.errors import ConfigurationError
from distcommit.sinks.mariadb.columns import check_names, column_type
from distcommit.sinks.mariadb.settings import MariadbTables


class MariadbSink(MariadbTables):
    """Rows go to tables of MariaDB, or of MySQL."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Raises:
        ConfigurationError: as `TableSink.check_schema`; or if MariaDB has no type for a column, or can't have its name.
        """
        super().check_schema(schema)
        _check_driver()
        check_names(schema)
        for field in schema:
            column_type(field, self.keys)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        _check_driver()
        from distcommit.sinks.mariadb.committer import MariadbCommitter  # noqa: PLC0415 - an extra of its own
        from distcommit.sinks.mariadb.connection import connected  # noqa: PLC0415

        connection = connected(self.url, with_secret_files(self.password.get_secret_value()))
        try:
            return MariadbCommitter(connection, self, context)
        except BaseException:
            connection.close()
            raise


def _check_driver() -> None:
    try:
        import pymysql  # noqa: F401, PLC0415 - an extra of its own
    except ImportError as error:
        raise ConfigurationError(
            "the MariaDB sink's driver is missing",
            found=str(error),
            todo="pip install 'distcommit[mariadb]', also where the executors run",
        ) from error
