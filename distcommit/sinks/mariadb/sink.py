"""The sink of tables of MariaDB, and of MySQL where both are alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pydantic import model_validator

from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.targets import Target, database_address
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.database_tls import check_mysql_url
from distcommit.sinks.base.clients import committing_by, needing_client
from distcommit.sinks.base.table_names import table_name
from distcommit.sinks.databases.server_sink import ServerSink
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS, TableCommitter
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET
from distcommit.sinks.mariadb.columns import MOST_NAME_CHARACTERS, NAMES, column_type

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from distcommit.sinks.mariadb.xa import XaMariadb


class MariadbSink(ServerSink):
    """Rows go to tables of MariaDB, or of MySQL."""

    schemes: ClassVar = ("mariadb", "mysql")
    requires_host: ClassVar = True

    type: Literal["mariadb"]

    @model_validator(mode="after")
    def _finds_no_locks(self) -> MariadbSink:
        if self.two_phase and self.tags:
            raise ValueError(
                "`two_phase` goes without `tags`: deleting rows by their tags reads the whole table, and would wait for"
                " the locks of prepared transactions"
            )
        return self

    def check_options(self) -> None:
        check_mysql_url(self.url, self.tls)

    @property
    def database(self) -> str:
        """The database's name."""
        return unquote(urlsplit(self.url).path.strip("/"))

    def pins(self) -> Mapping[str, FixedSetting]:
        """Return table and database. The server is not fixed, as servers may be renamed."""
        return {**super().pins(), "database": FixedSetting(self.database, ANOTHER_TARGET)}

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        names = (self.table_of(dataset_urn), LEDGER, PROOFS)
        return [Target("table", name, database_address(self.url)) for name in names]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"table {self.database}.{self.table_of(dataset_urn)} of {self.server}"

    def table_of(self, dataset_urn: str) -> str:
        """Return the table of a dataset, in lower case: only some servers distinguish names by their case."""
        return table_name(
            self.table,
            dataset_urn,
            most_bytes=MOST_NAME_CHARACTERS,
            any_case=False,
            basic_characters=True,
            taken=(LEDGER, PROOFS),
        )

    def check_schema(self, schema: pa.Schema) -> None:
        """Check that tables can have these columns.

        Raises:
            ConfigurationError: as `TableSink.check_schema`; or if MariaDB has no type for a column, or rejects its
                name.
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

    def check_connection(self) -> str:
        with needing_client(self.type), closing(self._connected()):
            return f"{self.server} accepts the user"

    def open_two_phase(self, context: CommitterContext) -> XaMariadb:
        with needing_client(self.type):
            from distcommit.sinks.mariadb.xa import XaMariadb  # noqa: PLC0415

        return committing_by(self._connected(), lambda made: XaMariadb(made, self, context, self._connected))

    def _connected(self) -> Connection[Cursor]:
        from distcommit.sinks.mariadb.connection import connected  # noqa: PLC0415

        return connected(self.url, self.password_text, self.tls)
