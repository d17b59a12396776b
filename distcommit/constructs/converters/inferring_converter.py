"""Base of the converters that can infer their columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.construct_settings import ConverterSettings, matching_settings
from distcommit.constructs.json_decoding.column_inference import InferredFields, columns_of_fields, json_reader
from distcommit.constructs.json_decoding.json_reader import JsonRecords
from distcommit.core.interfaces.constructs import InferredSchemaStore
from distcommit.core.support.settings_model import SettingError, SettingsModel, errors_of, rule
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.column_types import ColumnType
from distcommit.schemas.schema_history import Evolution


class DatasetFields(SettingsModel):
    """The evolution policy of the datasets whose names match a pattern.

    Attributes:
        match: the pattern, with `*` and `?`. The first match applies.
        evolution: the policy for a column that was not inferred before.
    """

    match: str = Field(min_length=1)
    evolution: Evolution


class InferringConverter(ConverterSettings, ignored_types=(cached_property,)):
    """A converter whose columns are declared, or else inferred and stored for each dataset.

    Attributes:
        evolution: the policy for a column that was not inferred before.
        datasets: the evolution of some datasets. It takes precedence over `evolution`.
    """

    process_local: ClassVar[frozenset[str]] = frozenset({"_inferred"})

    evolution: Evolution = "evolve"
    datasets: tuple[DatasetFields, ...] = ()

    @property
    @abstractmethod
    def _declared(self) -> Mapping[str, str] | None:
        """Declared types by column name; None if columns are inferred."""

    @property
    def unknown_field_setting(self) -> str:
        return "evolution" if self.evolution == "fail" else ""

    @cached_property
    def _inferred(self) -> InferredFields:
        return InferredFields(self.evolution)

    def begin_work_unit(self, unit: WorkUnit) -> None:
        own = matching_settings(unit.dataset_urn, self.datasets)
        self.__dict__["_inferred"] = InferredFields(own.evolution if own is not None else self.evolution)

    def use_schema_store(self, store: InferredSchemaStore) -> None:
        self._inferred.history.store = store

    def load_schema_ids(self, ids: Sequence[int]) -> None:
        self._inferred.history.load_ids(ids)

    def column_notes(self) -> Sequence[str]:
        return self._inferred.notes

    def schema_ids(self) -> Sequence[int]:
        return () if self._declared is not None else tuple(self._inferred.history.ids)


class JsonFieldsConverter(InferringConverter):
    """A converter of JSON objects in a column, whose fields are declared or inferred.

    Attributes:
        fields: `{NAME: TYPE}`. Left out: the fields are inferred.
        column: the column of objects.
    """

    fields: dict[str, ColumnType] | None = Field(default=None, min_length=1)
    column: str = "value"

    @rule
    def _fits_fields(self) -> Iterator[SettingError]:
        if self.fields is None:
            return
        for name in sorted(self.model_fields_set & {"evolution", "datasets"}):
            yield SettingError("must not be set with fields: it applies to inferred fields only", name)
        for name, written in self.fields.items():
            yield from errors_of(partial(json_reader, columns_of_fields({name: written})), "fields", name)

    @property
    def _declared(self) -> Mapping[str, str] | None:
        return self.fields

    def _read(self, objects: pa.Array) -> tuple[pa.Schema, JsonRecords]:
        if self.fields is None:
            return self._inferred.read(objects)
        columns = columns_of_fields(self.fields)
        return columns, json_reader(columns).read(objects)
