"""The sink of MariaDB tables, and of MySQL where both behave alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.support.comparable_addresses import database_address
from distcommit.core.support.settings_model import SettingError, rule
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.base.table_names import database_table_name
from distcommit.sinks.base.target_connections import needing_client
from distcommit.sinks.databases.server_sink import Driver, ServerSink
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET
from distcommit.sinks.mariadb.columns import MOST_NAME_CHARACTERS, NAMES, column_type


class MariadbSink(ServerSink):
    """Tables of a MariaDB or MySQL database."""

    schemes: ClassVar = ("mariadb", "mysql")
    requires_host: ClassVar = True

    type: Literal["mariadb"]

    @rule
    def _waits_for_no_locks(self) -> Iterator[SettingError]:
        if self.two_phase and self.tags:
            yield SettingError(
                "must not be true with two_phase: true, because deleting rows by their tags reads the whole table, and"
                " would wait for the locks of prepared transactions",
                "tags",
            )

    @property
    def database(self) -> str:
        return unquote(urlsplit(self.url).path.strip("/"))

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return table and database, but not the server, which may be renamed."""
        return {**super().fixed_settings(), "database": FixedSetting(self.database, ANOTHER_TARGET)}

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        names = (self.table_of(dataset_urn), LEDGER, PROOFS)
        return [Target("table", name, database_address(self.url)) for name in names]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"table {self.database}.{self.table_of(dataset_urn)} of {self.server}"

    def table_of(self, dataset_urn: str) -> str:
        """Return the table's name in lower case, because not all servers distinguish names by case."""
        return database_table_name(
            self.table,
            dataset_urn,
            most_bytes=MOST_NAME_CHARACTERS,
            any_case=False,
            basic_characters=True,
            selected=(LEDGER, PROOFS),
        )

    def check_schema(self, schema: pa.Schema) -> None:
        NAMES.check(schema.names)
        super().check_schema(schema)
        with needing_client(self.type):
            import pymysql  # noqa: F401, PLC0415
        for field in schema:
            column_type(field, self.keys)

    def driver(self) -> Driver:
        from distcommit.sinks.mariadb.committer import MariadbCommitter  # noqa: PLC0415
        from distcommit.sinks.mariadb.sessions import POOLED  # noqa: PLC0415
        from distcommit.sinks.mariadb.xa import XaMariadb  # noqa: PLC0415

        return Driver(POOLED, MariadbCommitter, XaMariadb)
