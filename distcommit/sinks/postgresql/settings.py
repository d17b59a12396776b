"""Which tables of PostgreSQL a sink's rows go to, and where its ledger is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from distcommit.core.interfaces.targets import Target, database_address
from distcommit.core.records.fixed_settings import Pin
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.database_tls import check_postgresql_url
from distcommit.sinks.base.table_names import table_name
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET, ServerSink

MAX_NAME_BYTES = 63


class PostgresqlTables(ServerSink):
    """Tables of one database.

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

    @model_validator(mode="after")
    def _options_are_known(self) -> PostgresqlTables:
        check_postgresql_url(self.url, self.tls)
        return self

    def pins(self) -> Mapping[str, Pin]:
        """Where rows and ledger are: the database by its name, as servers may be renamed, the schemas and the table."""
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
        parts = urlsplit(self.url)
        server = f"{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"table {self.schema_name}.{self.table_of(dataset_urn)} of {server}"

    def table_of(self, dataset_urn: str) -> str:
        """The table of a dataset."""
        return table_name(self.table, dataset_urn, most_bytes=MAX_NAME_BYTES, taken=(LEDGER, PROOFS))
