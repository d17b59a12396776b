"""The section `sink` of type `iceberg`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, field_validator

from distcommit.model.committer import CommitterContext, SinkCommitter
from distcommit.model.errors import ConfigurationError
from distcommit.model.pins import Pin
from distcommit.model.sink import BY_DATASET, Abilities, AttemptIdentity, Origin, SinkSettings, SinkWriter, StagingArea
from distcommit.model.work import MAIN_BRANCH
from distcommit.sinks.committer_sink import CommitterSink
from distcommit.sinks.table_names import DATASET, table_of

Evolution = Literal["none", "add_columns"]
_TERM = re.compile(r"(?:(\w+)\((?:(\d+),\s*)?([^(),]+)\)|([^(),]+))")
_TRANSFORMS = frozenset({"bucket", "truncate", "year", "month", "day", "hour"})
_SIZED = frozenset({"bucket", "truncate"})


class CatalogSettings(BaseModel):
    """Where the tables are listed. What else the section has goes to pyiceberg's catalog as it is: `uri`, `warehouse`,
    `s3.endpoint`, `token`, ..."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["sql", "rest"]
    uri: str
    name: str = "default"

    @property
    def properties(self) -> dict[str, str]:
        """As pyiceberg takes them."""
        others = {key: str(value) for key, value in (self.model_extra or {}).items()}
        return {"type": self.type, "uri": self.uri, **others}


class IcebergSink(BaseModel, CommitterSink, SinkSettings):
    """Adds records to Iceberg tables, exactly once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str] = "iceberg"
    discards: ClassVar[bool] = True
    abilities: ClassVar[Abilities] = Abilities(audit=True)

    type: Literal["iceberg"]
    catalog: CatalogSettings
    namespace: str = Field(min_length=1)
    table: str = DATASET
    create: bool = True
    evolve: Evolution = "none"
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    target_file_bytes: int = Field(default=512 << 20, ge=1 << 16)

    @field_validator("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", value.replace(DATASET, "d")):
            raise ValueError(f"letters, digits and _, and {DATASET} for the dataset's name; found {value!r}")
        return value

    @field_validator("partition_by", "sort_by")
    @classmethod
    def _check_terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for term in value:
            term_of(term)
        return value

    def table_of(self, dataset_urn: str) -> tuple[str, ...]:
        """The table's identifier: the parts of its namespace, and its name."""
        return (*self.namespace.split("."), table_of(self.table, dataset_urn))

    @property
    def shares_tables(self) -> bool:
        """Whether all datasets go to one table."""
        return DATASET not in self.table

    def pins(self) -> Mapping[str, Pin]:
        return {"namespace": Pin(self.namespace), "table": Pin(self.table)}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"Iceberg table {'.'.join(self.table_of(dataset_urn))}"

    @property
    def grouped_by(self) -> str:
        return f"table {self.namespace}.{self.table}" if self.shares_tables else BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        return ".".join(self.table_of(dataset_urn)) if self.shares_tables else dataset_urn

    def check_schema(self, schema: pa.Schema) -> None:
        from distcommit.sinks.iceberg.schemas import wanted_struct  # noqa: PLC0415 - needs the client

        wanted_struct(schema)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        from distcommit.sinks.iceberg.writer import IcebergWriter  # noqa: PLC0415 - needs the client

        return IcebergWriter(self, attempt, area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        from distcommit.sinks.iceberg.committer import IcebergCommitter  # noqa: PLC0415 - needs the client

        return IcebergCommitter(self, context)


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


def no_client(error: ImportError) -> ConfigurationError:
    """What to say where pyiceberg is not installed."""
    return ConfigurationError(
        "the sink iceberg needs its client", found=str(error), todo="pip install 'distcommit[iceberg]'"
    )
