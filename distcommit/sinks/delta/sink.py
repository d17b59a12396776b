"""The sink, which a job file names."""

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
from distcommit.sinks.delta.settings import DeltaSettings


class DeltaSink(DeltaSettings, CommitterSink, SinkSettings):
    """Adds records to Delta tables, exactly once."""

    type: Literal["delta"]
    name: ClassVar[str] = "delta"
    discards: ClassVar[bool] = True
    abilities: ClassVar[Abilities] = Abilities(audit=True)

    def pins(self) -> Mapping[str, Pin]:
        return {"location": Pin(self.location), "table": Pin(self.table)}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"Delta table {self.location}/{self.table_of(dataset_urn)}"

    @property
    def grouped_by(self) -> str:
        return f"table {self.location}/{self.table}" if self.shares_tables else BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        return self.table_of(dataset_urn) if self.shares_tables else dataset_urn

    def check_schema(self, schema: pa.Schema) -> None:
        with needing_client():
            from distcommit.sinks.delta.schemas import storable  # noqa: PLC0415

        storable(schema)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        with needing_client():
            from distcommit.sinks.delta.writer import DeltaWriter  # noqa: PLC0415

        return DeltaWriter(self, attempt, area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        with needing_client():
            from distcommit.sinks.delta.committer import DeltaCommitter  # noqa: PLC0415

        return DeltaCommitter(self, context)


@contextmanager
def needing_client() -> Iterator[None]:
    """Says what to install where the client is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the sink delta needs its client", found=str(error), todo="pip install 'distcommit[delta]'"
        ) from error
