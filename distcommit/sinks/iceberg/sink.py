"""The section `sink` of type `iceberg`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Literal

import pyarrow as pa

from distcommit.model.committer import CommitterContext, SinkCommitter
from distcommit.model.errors import ConfigurationError
from distcommit.model.pins import Pin
from distcommit.model.sink import BY_DATASET, Abilities, AttemptIdentity, Origin, SinkSettings, SinkWriter, StagingArea
from distcommit.model.work import MAIN_BRANCH
from distcommit.sinks.committer_sink import CommitterSink
from distcommit.sinks.iceberg.settings import IcebergSettings


class IcebergSink(IcebergSettings, CommitterSink, SinkSettings):
    """Adds records to Iceberg tables, exactly once."""

    type: Literal["iceberg"]
    name: ClassVar[str] = "iceberg"
    discards: ClassVar[bool] = True
    abilities: ClassVar[Abilities] = Abilities(audit=True)

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
        with needing_client():
            from distcommit.sinks.iceberg.schemas import wanted_struct  # noqa: PLC0415

        wanted_struct(schema)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        with needing_client():
            from distcommit.sinks.iceberg.writer import IcebergWriter  # noqa: PLC0415

        return IcebergWriter(self, attempt, area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        with needing_client():
            from distcommit.sinks.iceberg.committer import IcebergCommitter  # noqa: PLC0415

        return IcebergCommitter(self, context)


@contextmanager
def needing_client() -> Iterator[None]:
    """Says what to install where the client is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the sink iceberg needs its client", found=str(error), todo="pip install 'distcommit[iceberg]'"
        ) from error
