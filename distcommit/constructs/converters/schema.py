"""The converter `schema`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.construct_settings import ConverterSettings, matching_settings
from distcommit.core.interfaces.constructs import Converted, InferredSchemaStore
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.coercion import convert_to_pinned
from distcommit.schemas.evolution_policy import DatasetSchemas, EvolutionPolicy
from distcommit.schemas.known_columns import Columns, check_unique_names


class DatasetEvolutionPolicy(EvolutionPolicy):
    """The policy of the datasets whose names match a pattern.

    Attributes:
        match: the pattern, with `*` and `?`. The first match applies.
    """

    match: str = Field(min_length=1)


class SchemaConverter(EvolutionPolicy, ConverterSettings, ignored_types=(cached_property,)):
    """Converter that applies a policy to columns which differ from those of the dataset's earlier records.

    Use it for sources whose records have columns of their own, such as tables or files, and behind custom converters.
    The first records are accepted unchanged. All tasks of the run use their columns. Later runs use these columns once
    the records are published. With `pin`, new columns are dropped, missing columns are null, and narrower types are
    widened. If the policy is changed to `pin` later, the newest columns are pinned.

    Attributes:
        datasets: policies of some datasets. They take precedence over the converter's policy.
    """

    process_local: ClassVar[frozenset[str]] = frozenset({"_schemas"})

    type: Literal["schema"]
    datasets: tuple[DatasetEvolutionPolicy, ...] = ()

    @cached_property
    def _schemas(self) -> DatasetSchemas:
        return DatasetSchemas(self)

    def convert_columns(self, columns: Columns) -> Columns:
        is_pinned = any(policy.evolution == "pin" for policy in (self, *self.datasets))
        return Columns() if is_pinned else check_unique_names(columns, "schema")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        reason = self._schemas.admit(batch.schema.remove_metadata())
        if not reason and self._schemas.pinned is not None:
            batch, reason = convert_to_pinned(batch, self._schemas.pinned)
        if reason:
            rejected = dict.fromkeys(range(batch.num_rows), reason)
            yield Converted(batch.slice(0, 0), pa.array([], pa.int64()), rejected)
        else:
            yield Converted(batch)

    def begin_work_unit(self, unit: WorkUnit) -> None:
        policy = matching_settings(unit.dataset_urn, self.datasets) or self
        self.__dict__["_schemas"] = DatasetSchemas(policy)

    def use_schema_store(self, store: InferredSchemaStore) -> None:
        self._schemas.history.store = store

    def load_schema_ids(self, ids: Sequence[int]) -> None:
        self._schemas.history.load_ids(ids)

    def schema_ids(self) -> Sequence[int]:
        return tuple(self._schemas.history.ids)
