"""What converters by a schema registry have in common: which schema a record names, and what is done if it is another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from distcommit.constructs.columns import field_of
from distcommit.constructs.registry.client import FoundSchema, PinnedSchema, Registry, RegistrySettings, UnknownSchemaError
from distcommit.constructs.registry.wire import Framed, split
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter
from distcommit.model.errors import ConfigurationError, RecordError

SCHEMA_ID = b"schema_id"
"""Key of the metadata of the Arrow schema that is made: the id of the registry's schema that the columns are of."""


class UnusableSchemaError(ValueError):
    """A schema that can't become columns, or two that do not fit: what is wrong, and where."""


class Decoder(Protocol):
    """Decodes the messages of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """What it makes, with columns that may be null."""

    def decode(self, framed: Framed) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
        """Records, one for each message, in pieces where messages can be of several types, and what is wrong with
        messages, by their number; of these, what stands among the records means nothing."""


@dataclass(slots=True)
class _Known:
    """What was learned in this process: it is not sent to others.

    `decoders`: by schema id; a text says why there is none. `last`: the columns of the record before.
    """

    registry: Registry
    decoders: dict[int, Decoder | str] = field(default_factory=dict)
    pinned: FoundSchema | None = None
    last: pa.Schema | None = None


class RegistryConverter(
    ConstructSettings, Converter, frozen=True, extra="forbid", ignored_types=(cached_property,), populate_by_name=True
):
    """The section of a converter that a schema registry tells how to read a column.

    The column's fields take its place, behind the other columns. A null has null in all of them. Records of several
    schemas come as several pieces, whose Arrow schemas name the id in their metadata (`schema_id`).

    Attributes:
        column: which one holds the messages.
        registry: where schemas are.
        pinned: `schema` in the job file: the one that `pin` and `fail` are about.
        evolution: what is done with records of another schema than before: `evolve` takes each as its writer's schema
            has it; `pin` reads all as the pinned schema has it, and rejects those whose schema does not fit it; `fail`
            fails the work unit.
    """

    kind: ClassVar[str]
    column: str = "value"
    registry: RegistrySettings
    pinned: PinnedSchema | None = Field(default=None, alias="schema")
    evolution: Literal["evolve", "pin", "fail"] = "evolve"

    @model_validator(mode="after")
    def _pinned_where_it_is_needed(self) -> RegistryConverter:
        if (self.pinned is None) != (self.evolution == "evolve"):
            raise ValueError(
                "evolution: pin and fail need a schema (subject and version), and evolve takes each as it comes"
            )
        return self

    @cached_property
    def _known(self) -> _Known:
        return _Known(Registry(self.registry))

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "_known"}}

    @abstractmethod
    def decoder(self, writer: FoundSchema, reader: FoundSchema | None) -> Decoder:
        """What decodes messages of a schema, as they are or as the reader's schema wants them.

        Raises:
            UnusableSchemaError: if there are no columns for it, or the two do not fit.
        """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        self._check_column(schema)
        if self.pinned is None:
            return None
        found = self._reader(self.pinned)
        try:
            decoder = self._made(found, None)
        except UnusableSchemaError as error:
            raise self._unusable(found, str(error)) from error
        reason = self._clash(schema, decoder.schema)
        if reason:
            raise self._unusable(found, reason)
        return self._beside(schema, decoder.schema, found.schema_id)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        self._check_column(batch.schema)
        found = split(batch.column(self.column))
        rejected = dict(found.rejected)
        pieces: list[tuple[pa.RecordBatch, pa.Array]] = []
        for framed in found.framed:
            decoder = self._decoder(framed, batch.schema)
            if isinstance(decoder, str):
                rejected |= dict.fromkeys(framed.rows.tolist(), decoder)
                continue
            for records, rows, reasons in self._decoded(framed, decoder):
                rejected |= reasons
                pieces.append(self._placed(batch, records, rows, framed.schema_id))
        if len(found.nulls):
            pieces.append(self._nulls(batch, found.nulls))
        if not pieces:
            nothing = self._known.last or self._beside(batch.schema, pa.schema([]), None)
            pieces.append((nothing.empty_table().to_batches()[0] if nothing.empty_table().to_batches() else pa.RecordBatch.from_pylist([], schema=nothing), pa.array([], pa.int64())))
        for number, (records, rows) in enumerate(pieces):
            yield Converted(records, rows, {} if number else rejected)

    def close(self) -> None:
        known: _Known | None = self.__dict__.get("_known")
        if known is not None:
            known.registry.close()
            known.last = None
            unknown = [number for number, decoder in known.decoders.items() if isinstance(decoder, str)]
            for number in unknown:
                del known.decoders[number]
