"""The settings of the PostgreSQL sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field

from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.support.comparable_addresses import database_address
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.base.table_names import database_table_name
from distcommit.sinks.databases.server_sink import ServerSink
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET

MAX_NAME_BYTES = 63
"""The server cuts off longer names."""


class PostgresqlSettings(ServerSink):
    """Tables of one database, and the schemas of the tables and of the ledger.

    Attributes:
        schema: the schema of the tables.
        ledger_schema: the schema of the ledger; by default that of the tables. Several jobs may share a ledger.
    """

    schemes: ClassVar = ("postgresql",)

    type: Literal["postgresql"]
    schema_name: str = Field(default="public", alias="schema", min_length=1)
    ledger_schema: str = ""

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return table, database and schemas, but not the server, which may be renamed."""
        database = unquote(urlsplit(self.url).path.removeprefix("/"))
        ledger = self.ledger_schema or self.schema_name
        named = {"database": database, "schema": self.schema_name, "ledger_schema": ledger}
        return {
            **super().fixed_settings(),
            **{name: FixedSetting(value, ANOTHER_TARGET) for name, value in named.items()},
        }

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
        return database_table_name(self.table, dataset_urn, most_bytes=MAX_NAME_BYTES, selected=(LEDGER, PROOFS))
