"""The converter `schema`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.schemas.columns import Columns, check_unique_names
from distcommit.constructs.schemas.schema_policy import DatasetSchemas, Evolution, OnIncompatible, convert_to_pinned
from distcommit.constructs.settings import ConverterSettings, matching_settings
from distcommit.core.interfaces.constructs import Converted, InferredSchemaStore
from distcommit.core.support.setting_errors import SettingError, SettingsModel, rule


class SchemaPolicy(SettingsModel):
    """A policy for schemas.

    Attributes:
        evolution: the policy for records with other columns than earlier records. `evolve` accepts them unchanged if
            both can be read as one table. `pin` converts them to the earlier columns, and rejects those that do not
            fit. `fail` fails the work unit.
        on_incompatible: the policy of `evolve` for incompatible records: `reject` them (as `on_rejected` says), `fail`
            the work unit, or `accept` them unchanged.
    """

    evolution: Evolution = "evolve"
    on_incompatible: OnIncompatible = "reject"

    @rule
    def _fits_evolution(self) -> Iterator[SettingError]:
        if self.evolution != "evolve" and "on_incompatible" in self.model_fields_set:
            yield SettingError("must only be set with evolution: evolve", "on_incompatible")


class DatasetSchemaPolicy(SchemaPolicy):
    """The policy of the datasets whose names match a pattern.

    Attributes:
        match: the pattern, with `*` and `?`. The first match applies.
    """

    match: str = Field(min_length=1)


class SchemaConverter(SchemaPolicy, ConverterSettings, ignored_types=(cached_property,)):
    """Converter that applies a policy to columns which differ from those of the dataset's earlier records.

    It suits sources with columns of their own, such as tables or files, and custom converters. The first records are
    accepted unchanged. All tasks of the run use their columns. Later runs use them once the records are published. With
    `pin`, new columns are dropped, missing columns are null, and narrower types are widened. If the policy becomes
    `pin` later, the newest columns are pinned.

    Attributes:
        datasets: the policies of some datasets. They precede the converter's own.
    """

    process_local: ClassVar[frozenset[str]] = frozenset({"_held"})

    type: Literal["schema"]
    datasets: tuple[DatasetSchemaPolicy, ...] = ()

    @cached_property
    def _held(self) -> DatasetSchemas:
        return DatasetSchemas(self.evolution, self.on_incompatible)

    def convert_columns(self, columns: Columns) -> Columns:
        pins = any(policy.evolution == "pin" for policy in (self, *self.datasets))
        return Columns() if pins else check_unique_names(columns, "schema")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        reason = self._held.admit(batch.schema.remove_metadata())
        if not reason and self._held.pinned is not None:
            batch, reason = convert_to_pinned(batch, self._held.pinned)
        if reason:
            rejected = dict.fromkeys(range(batch.num_rows), reason)
            yield Converted(batch.slice(0, 0), pa.array([], pa.int64()), rejected)
        else:
            yield Converted(batch)

    def begin_work_unit(self, dataset_urn: str) -> None:
        policy = matching_settings(dataset_urn, self.datasets) or self
        self.__dict__["_held"] = DatasetSchemas(policy.evolution, policy.on_incompatible)

    def use_schema_store(self, kept: InferredSchemaStore) -> None:
        self._held.kept = kept

    def load_schema_ids(self, ids: Sequence[int]) -> None:
        self._held.know(ids)

    def known_schema_ids(self) -> Sequence[int]:
        return tuple(self._held.ids)
