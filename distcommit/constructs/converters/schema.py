"""Records held to the columns that their dataset has had before, whatever made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, Field, model_validator

from distcommit.constructs.schemas.columns import Columns, unique_names
from distcommit.constructs.schemas.schema_policy import Evolution, HeldSchemas, OnIncompatible, read_as
from distcommit.constructs.settings import ConverterSettings, own_of
from distcommit.core.interfaces.constructs import Converted, KeptSchemas


class SchemaPolicy(BaseModel, frozen=True, extra="forbid"):
    """A policy.

    Attributes:
        evolution: what becomes of records with other columns than those before: `evolve` takes them as they come, if
            both can be read as one table; `pin` makes the columns of those before of them, and rejects what does not
            fit; `fail` fails the work unit.
        on_incompatible: of `evolve`, what becomes of records that are not compatible: they are rejected (`reject`: as
            `on_rejected` says), fail the work unit (`fail`), or are taken as they come (`accept`).
    """

    evolution: Evolution = "evolve"
    on_incompatible: OnIncompatible = "reject"

    @model_validator(mode="after")
    def _settings_go_together(self) -> SchemaPolicy:
        if self.evolution != "evolve" and "on_incompatible" in self.model_fields_set:
            raise ValueError(f"on_incompatible is of evolution: evolve, and this is {self.evolution}")
        return self


class DatasetSchemaPolicy(SchemaPolicy, frozen=True, extra="forbid"):
    """The policy of some datasets.

    Attributes:
        match: their names, with `*` and `?`; the first that matches holds.
    """

    match: str = Field(min_length=1)


class SchemaConverter(SchemaPolicy, ConverterSettings, frozen=True, extra="forbid", ignored_types=(cached_property,)):
    """Holds records to the columns that the dataset's records have had before, at this place of the chain.

    For columns that a source has of its own, such as a table's or a file's, and for those of a converter of yours. The
    first records' are taken as they are, and known to all that read the dataset in that run and, once what was read is
    published, in later ones. Of `pin`, columns that are new are left out, those that are not there are null, and
    narrower types are widened; if the policy is changed to it, the newest columns are pinned.

    Attributes:
        datasets: policies of some datasets; the others have the one that stands beside.
    """

    type: Literal["schema"]
    datasets: tuple[DatasetSchemaPolicy, ...] = ()

    @cached_property
    def _held(self) -> HeldSchemas:
        return HeldSchemas(self.evolution, self.on_incompatible)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "_held"}}

    def convert_columns(self, columns: Columns) -> Columns:
        pins = any(each.evolution == "pin" for each in (self, *self.datasets))
        return Columns() if pins else unique_names(columns, "schema")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        reason = self._held.admit(batch.schema.remove_metadata())
        if not reason and self._held.pinned is not None:
            batch, reason = read_as(batch, self._held.pinned)
        if reason:
            rejected = dict.fromkeys(range(batch.num_rows), reason)
            yield Converted(batch.slice(0, 0), pa.array([], pa.int64()), rejected)
        else:
            yield Converted(batch)

    def begin_work_unit(self, dataset_urn: str) -> None:
        policy = own_of(dataset_urn, self.datasets) or self
        self.__dict__["_held"] = HeldSchemas(policy.evolution, policy.on_incompatible)

    def keep_schemas(self, kept: KeptSchemas) -> None:
        self._held.kept = kept

    def know_schemas(self, ids: Sequence[int]) -> None:
        self._held.know(ids)

    def schemas_known(self) -> Sequence[int]:
        return tuple(self._held.ids)
