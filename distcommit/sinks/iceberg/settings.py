"""The settings of the Iceberg sink."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from distcommit.core.support.settings_model import SettingError, SettingsModel, errors_of, raise_all, rule
from distcommit.fs.database_tls import Tls, check_postgresql_url, uri_with_tls
from distcommit.fs.secret_files import with_secret_files
from distcommit.sinks.base.table_names import plain_table_name
from distcommit.sinks.table_formats.data_file_sink import DataFileSink, Evolution

_TERM = re.compile(r"(?:(\w+)\((?:(\d+),\s*)?([^(),]+)\)|([^(),]+))")
_TRANSFORMS = frozenset({"bucket", "truncate", "year", "month", "day", "hour"})
_SIZED = frozenset({"bucket", "truncate"})


class CatalogSettings(SettingsModel):
    """The catalog of the tables. All further keys are passed to pyiceberg's catalog: `warehouse`, `s3.endpoint`,
    `token`, ...

    Attributes:
        type: `sql` (SQLite, PostgreSQL) or `rest`.
        uri: the catalog's address as pyiceberg takes it.
        name: the catalog's name in pyiceberg.
        tls: for type `sql`, as for the sink `postgresql`: `verify`, or `insecure` to accept any certificate.
    """

    model_config = ConfigDict(extra="allow")

    type: Literal["sql", "rest"]
    uri: str
    name: str = "default"
    tls: Tls = "verify"

    @rule
    def _url_options_are_valid(self) -> Iterator[SettingError]:
        if self.uri.startswith("postgresql"):
            yield from errors_of(partial(check_postgresql_url, self.uri, self.tls), "uri")

    @property
    def properties(self) -> dict[str, str]:
        extra = {key: with_secret_files(str(value)) for key, value in (self.model_extra or {}).items()}
        uri = uri_with_tls(self.uri, self.tls) if self.uri.startswith("postgresql") else self.uri
        return {"type": self.type, "uri": uri, **extra}


class IcebergSettings(DataFileSink):
    """The Iceberg tables of datasets, and the creation of missing tables.

    Attributes:
        catalog: the catalog of the tables.
        namespace: the tables' namespace, with dots between its parts; a missing one is created.
        evolve: handling of columns that the table lacks or that are too narrow: `none` refuses the records;
            `add_columns` adds and widens the columns.
        partition_by: partitions of created tables: columns, or `year(c)`, `month(c)`, `day(c)`, `hour(c)`,
            `bucket(N, c)`, `truncate(N, c)`.
        sort_by: sort order of created tables: columns, or transforms as above.
    """

    catalog: CatalogSettings
    namespace: str = Field(min_length=1)
    evolve: Evolution = "none"
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()

    @field_validator("partition_by", "sort_by")
    @classmethod
    def _check_terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        raise_all(error for index, term in enumerate(value) for error in errors_of(partial(term_of, term), index))
        return value

    def table_of(self, dataset_urn: str) -> tuple[str, ...]:
        return (*self.namespace.split("."), plain_table_name(self.table, dataset_urn))


def term_of(term: str) -> tuple[str, str]:
    """Return column and transform of a term such as `day(time)` or `key`. Raises ValueError for an invalid term."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise SettingError("must be a column, or a transform such as day(time) or bucket(16, key)", actual=repr(term))
    transform, size, column, plain = match.groups()
    if plain is not None:
        return plain.strip(), "identity"
    if transform not in _TRANSFORMS or (size is not None) != (transform in _SIZED):
        raise SettingError(
            "must be year, month, day, hour, bucket(N, column) or truncate(N, column)", actual=repr(term)
        )
    return column.strip(), f"{transform}[{size}]" if size else transform
