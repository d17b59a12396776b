"""Which tables of MariaDB a sink's rows go to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import field_validator, model_validator

from distcommit.core.interfaces.targets import Target, database_address
from distcommit.core.records.fixed_settings import Pin
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.database_tls import check_mysql_url
from distcommit.sinks.base.table_names import table_name
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET, ServerSink

MOST_NAME_CHARACTERS = 64


class MariadbTables(ServerSink):
    """Tables of one database, in which the ledger is, too."""

    type: Literal["mariadb"]

    @field_validator("url")
    @classmethod
    def _is_mariadb(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("mariadb", "mysql") or not parts.hostname:
            raise ValueError("begins with mariadb://host, or mysql://host")
        return url

    @model_validator(mode="after")
    def _options_are_known(self) -> MariadbTables:
        check_mysql_url(self.url, self.tls)
        return self

    @model_validator(mode="after")
    def _finds_no_locks(self) -> MariadbTables:
        if self.two_phase and self.tags:
            raise ValueError(
                "`two_phase` goes without `tags`: deleting by them looks at all rows of the table, and would wait for"
                " those that are prepared"
            )
        return self

    @property
    def database(self) -> str:
        """The database's name."""
        return unquote(urlsplit(self.url).path.strip("/"))

    def pins(self) -> Mapping[str, Pin]:
        """Where rows and ledger are: the database by its name, as servers may be renamed, and the table."""
        return {**super().pins(), "database": Pin(self.database, ANOTHER_TARGET)}

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        names = (self.table_of(dataset_urn), LEDGER, PROOFS)
        return [Target("table", name, database_address(self.url)) for name in names]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        server = urlsplit(self.url).netloc.rpartition("@")[2]
        return f"table {self.database}.{self.table_of(dataset_urn)} of {server}"

    def table_of(self, dataset_urn: str) -> str:
        """The table of a dataset, in small letters: some servers tell names apart by their case, and some do not."""
        return table_name(
            self.table,
            dataset_urn,
            most_bytes=MOST_NAME_CHARACTERS,
            any_case=False,
            basic_characters=True,
            taken=(LEDGER, PROOFS),
        )
