"""The settings of the Iceberg sink, and what they say of a dataset."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from distcommit.fs.database_tls import Tls, check_postgresql_url, uri_with_tls
from distcommit.fs.secret_files import with_secret_files
from distcommit.sinks.base.table_names import table_of
from distcommit.sinks.table_formats.data_file_sink import DataFileTables, Evolution

_TERM = re.compile(r"(?:(\w+)\((?:(\d+),\s*)?([^(),]+)\)|([^(),]+))")
_TRANSFORMS = frozenset({"bucket", "truncate", "year", "month", "day", "hour"})
_SIZED = frozenset({"bucket", "truncate"})


class CatalogSettings(BaseModel):
    """Where the tables are listed. What else the section has goes to pyiceberg's catalog as it is: `uri`, `warehouse`,
    `s3.endpoint`, `token`, ...

    Attributes:
        type: `sql` (SQLite, PostgreSQL) or `rest`.
        uri: where it is, as pyiceberg has it.
        name: what pyiceberg calls it.
        tls: of type `sql`, as of the sink `postgresql`: `verify`, or `insecure` to accept any certificate.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["sql", "rest"]
    uri: str
    name: str = "default"
    tls: Tls = "verify"

    @model_validator(mode="after")
    def _check_tls(self) -> CatalogSettings:
        if self.uri.startswith("postgresql"):
            check_postgresql_url(self.uri, self.tls)
        return self

    @property
    def properties(self) -> dict[str, str]:
        """As pyiceberg takes them."""
        others = {key: with_secret_files(str(value)) for key, value in (self.model_extra or {}).items()}
        uri = uri_with_tls(self.uri, self.tls) if self.uri.startswith("postgresql") else self.uri
        return {"type": self.type, "uri": uri, **others}


class IcebergSettings(DataFileTables):
    """Which tables records go to, and how these are made.

    Attributes:
        catalog: where the tables are listed.
        namespace: which they are in, with dots between its parts; it is made if it is missing.
        evolve: `add_columns`: new columns are added, narrow ones widened; `none`: such records fail.
        partition_by: of tables that are made: columns, or `year(c)`, `month(c)`, `day(c)`, `hour(c)`, `bucket(N, c)`,
            `truncate(N, c)`.
        sort_by: of tables that are made: columns, or transforms as above.
    """

    catalog: CatalogSettings
    namespace: str = Field(min_length=1)
    evolve: Evolution = "none"
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()

    @field_validator("partition_by", "sort_by")
    @classmethod
    def _check_terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for term in value:
            term_of(term)
        return value

    def table_of(self, dataset_urn: str) -> tuple[str, ...]:
        """The table's identifier: the parts of its namespace, and its name."""
        return (*self.namespace.split("."), table_of(self.table, dataset_urn))


def term_of(term: str) -> tuple[str, str]:
    """A term such as `day(time)`, `bucket(16, key)` or `key` as the column and Iceberg's name of the transform.

    Raises:
        ValueError: if it is none.
    """
    found = _TERM.fullmatch(term.strip())
    if found is None:
        raise ValueError(f"a column, or a transform of one such as day(time) or bucket(16, key); found {term!r}")
    transform, size, column, plain = found.groups()
    if plain is not None:
        return plain.strip(), "identity"
    if transform not in _TRANSFORMS or (size is not None) != (transform in _SIZED):
        raise ValueError(f"year, month, day, hour, bucket(N, column) or truncate(N, column); found {term!r}")
    return column.strip(), f"{transform}[{size}]" if size else transform
