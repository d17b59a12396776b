"""The sink of Delta tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.base.target_connections import needing_client
from distcommit.sinks.delta.settings import DeltaSettings
from distcommit.sinks.table_formats.partition_value_checker import NO_VALUE, PartitionValues


class DeltaSink(DeltaSettings):
    """Adds records to Delta tables, exactly once."""

    type: Literal["delta"]

    @property
    def rejection_check(self) -> PartitionValues | None:
        rule = f"a partition's value must not be an empty text or {NO_VALUE}, which Delta reads as null"
        return PartitionValues(self.partition_by, _is_read_back, rule) if self.partition_by else None

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        return {"location": FixedSetting(self.location), "table": FixedSetting(self.table)}

    @property
    def writes_to(self) -> str:
        return f"Delta tables {self.shown(self.table)}"

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        return [Target("folder", self.shown(self.table_of(dataset_urn)))]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"Delta table {self.shown(self.table_of(dataset_urn))}"

    def shown(self, table: str) -> str:
        return f"{self.location}/{table}"

    def group_of(self, dataset_urn: str) -> str:
        return self.table_of(dataset_urn)

    def check_schema(self, schema: pa.Schema) -> None:
        with needing_client(self.type):
            from distcommit.sinks.delta.schemas import storable  # noqa: PLC0415

        storable(schema)

    def check_connection(self) -> str:
        with needing_client(self.type):
            from distcommit.sinks.delta.locations import opened  # noqa: PLC0415

        opened(self.location).check()
        return f"{self.location} can be listed"

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        with needing_client(self.type):
            from distcommit.sinks.delta.writer import DeltaWriter  # noqa: PLC0415

        return DeltaWriter(self, attempt, area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        with needing_client(self.type):
            from distcommit.sinks.delta.committer import DeltaCommitter  # noqa: PLC0415

        return DeltaCommitter(self, context)


def _is_read_back(field: str, value: str) -> bool:
    return value not in ("", NO_VALUE)
