"""The sink of Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.interfaces.target_identity import ICEBERG, Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.support.comparable_addresses import catalog_addresses
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.base.target_connections import needing_client
from distcommit.sinks.iceberg.settings import IcebergSettings


class IcebergSink(IcebergSettings):
    """Adds records to Iceberg tables, exactly once."""

    type: Literal["iceberg"]

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        return {"namespace": FixedSetting(self.namespace), "table": FixedSetting(self.table)}

    @property
    def writes_to(self) -> str:
        return f"Iceberg tables {self.shown(self.table)} of {self.catalog.uri}"

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        warehouse = str((self.catalog.model_extra or {}).get("warehouse", ""))
        systems = {ICEBERG, *catalog_addresses(self.catalog.uri, warehouse)}
        return [Target("table", ".".join(self.table_of(dataset_urn)), frozenset(systems))]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"Iceberg table {'.'.join(self.table_of(dataset_urn))}"

    def shown(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def group_of(self, dataset_urn: str) -> str:
        return ".".join(self.table_of(dataset_urn))

    def check_schema(self, schema: pa.Schema) -> None:
        with needing_client(self.type):
            from distcommit.sinks.iceberg.schemas import required_struct  # noqa: PLC0415

        required_struct(schema)

    def announce(self, datasets: Sequence[str], schema: pa.Schema, run_id: str) -> None:
        with needing_client(self.type):
            from distcommit.sinks.iceberg.catalog.open_catalogs import cached_tables  # noqa: PLC0415
            from distcommit.sinks.iceberg.table_creation import prepare_tables  # noqa: PLC0415

        names = list(dict.fromkeys(map(self.table_of, datasets)))
        prepare_tables(self, names, schema, cached_tables(self.catalog, names[0][:-1], run_id))

    def look_up(self, datasets: Sequence[str], run_id: str) -> None:
        with needing_client(self.type):
            from distcommit.sinks.iceberg.catalog.open_catalogs import cached_tables  # noqa: PLC0415

        names = list(dict.fromkeys(map(self.table_of, datasets)))
        cached_tables(self.catalog, names[0][:-1], run_id).look_up(names)

    def check_connection(self) -> str:
        with needing_client(self.type):
            from distcommit.sinks.iceberg.catalog.open_catalogs import check_catalog  # noqa: PLC0415

        return check_catalog(self.catalog)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        with needing_client(self.type):
            from distcommit.sinks.iceberg.writer import IcebergWriter  # noqa: PLC0415

        return IcebergWriter(self, attempt, area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        with needing_client(self.type):
            from distcommit.sinks.iceberg.committer import IcebergCommitter  # noqa: PLC0415

        return IcebergCommitter(self, context)
