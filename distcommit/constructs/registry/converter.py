"""What converters by a schema registry have in common: which schema a record names, and what is done with another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from distcommit.constructs.columns import field_of, unique_names
from distcommit.constructs.registry.client import (
    FoundSchema,
    PinnedSchema,
    Registry,
    RegistrySettings,
    UnknownSchemaError,
    UnusableSchemaError,
)
from distcommit.constructs.registry.wire import Framed, split
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter
from distcommit.model.errors import ConfigurationError, RecordError

SCHEMA_ID = b"schema_id"
"""Key of the metadata of the Arrow schema that is made: the id of the registry's schema that the columns are of."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What messages have become.

    Attributes:
        records: one for each message that is named.
        numbers: which messages these are; None: all, in order.
        wrong: what is wrong with messages, by number. A record that is there for one of them means nothing.
    """

    records: pa.RecordBatch
    numbers: NDArray[np.int64] | None
    wrong: Mapping[int, str]


class Decoder(Protocol):
    """Decodes the messages of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """What it makes, with columns that may be null."""

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        """Records of the messages, in one piece for each schema."""


@dataclass(slots=True)
class _Known:
    """What was learned in this process: it is not sent to others.

    `decoders`: by schema id; a text says why there is none. `last`: the columns of the record before; `dataset`: whose
    records they are.
    """

    registry: Registry
    decoders: dict[int, Decoder | str] = field(default_factory=dict)
    pinned: FoundSchema | None = None
    last: pa.Schema | None = None
    dataset: str = ""


class RegistryConverter(
    ConstructSettings, Converter, frozen=True, extra="forbid", ignored_types=(cached_property,), populate_by_name=True
):
    """The section of a converter that a schema registry tells how to read a column.

    A message's fields become columns behind the others, and may all be null: a null value has null in each, and the
    columns of the record before it. If there was none in the work unit, it has those of the newest schema of the
    topic's subject, as producers name it (`TOPIC-value`, or `-key`), or none if the registry knows no such subject.
    Records of several schemas come in several pieces, whose Arrow schemas name the registry's id in their metadata.

    Turned away is what is not in the wire format, or not of its schema, and what names a schema that the registry does
    not know, or that has no columns: the registry is asked once for each id in a task.

    Attributes:
        registry: where schemas are.
        pinned: `schema` in the job file: the one that `pin` and `fail` are about.
        evolution: what is done with records of another schema than before: `evolve` takes each as its writer's schema
            has it; `pin` reads all as the pinned schema has it, and rejects those whose schema does not fit it; `fail`
            fails the work unit.
        column: the column that holds messages.
        keep_column: whether it stays beside the fields.
    """

    kind: ClassVar[str]
    registry: RegistrySettings
    pinned: PinnedSchema | None = Field(default=None, alias="schema")
    evolution: Literal["evolve", "pin", "fail"] = "evolve"
    column: str = "value"
    keep_column: bool = False

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
        field_of(schema, self.column, self.type, _is_binary, "binary")
        return None if self.pinned is None else self._beside(schema, self._pinned_decoder().schema)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        field_of(batch.schema, self.column, self.type, _is_binary, "binary")
        found = split(batch.column(self.column))
        rejected = dict(found.rejected)
        pieces = []
        for framed in found.framed:
            decoder = self._decoder(framed.schema_id)
            if isinstance(decoder, str):
                rejected |= dict.fromkeys(framed.rows.tolist(), decoder)
                continue
            for decoded in decoder.decode(framed):
                rejected |= {int(framed.rows[number]): reason for number, reason in decoded.wrong.items()}
                pieces.append(self._placed(batch, framed, decoded))
        if len(found.nulls) or not pieces:
            pieces.append(self._nulls(batch, found.nulls))
        for number, piece in enumerate(pieces):
            yield Converted(piece.records, piece.rows, {} if number else rejected)

    def begin_work_unit(self, dataset_urn: str) -> None:
        self._known.last, self._known.dataset = None, dataset_urn

    def close(self) -> None:
        known: _Known | None = self.__dict__.get("_known")
        if known is not None:
            known.registry.close()
            known.decoders = {key: found for key, found in known.decoders.items() if not isinstance(found, str)}

    def _reader(self) -> FoundSchema | None:
        """The pinned schema."""
        known = self._known
        if known.pinned is None and self.pinned is not None:
            try:
                known.pinned = known.registry.version(self.pinned)
                self._check_kind(known.pinned)
            except (UnknownSchemaError, UnusableSchemaError) as error:
                raise self._wrong_pin(str(error)) from error
        return known.pinned

    def _pinned_decoder(self) -> Decoder:
        reader = self._reader()
        found = self._decoder(reader.schema_id) if reader is not None else ""
        if isinstance(found, str):
            raise self._wrong_pin(found)
        return found

    def _decoder(self, schema_id: int) -> Decoder | str:
        """What decodes messages of a schema, or why nothing can."""
        known = self._known
        if schema_id not in known.decoders:
            reader = self._reader()
            if self.evolution == "fail" and reader is not None and schema_id != reader.schema_id:
                raise RecordError(
                    "a record is of another schema than the pinned one, and evolution is fail",
                    registry=self.registry.url,
                    expected=f"schema id {reader.schema_id}",
                    found=f"schema id {schema_id}",
                    todo="look at what the producer has changed, then pin that version",
                )
            try:
                writer = known.registry.schema(schema_id)
                self._check_kind(writer)
                made: Decoder | str = self.decoder(writer, reader)
            except UnknownSchemaError as error:
                made = str(error)
            except UnusableSchemaError as error:
                made = f"schema id {schema_id}: {error}"
            known.decoders[schema_id] = made
        return known.decoders[schema_id]

    def _check_kind(self, found: FoundSchema) -> None:
        if found.kind != self.kind:
            raise UnusableSchemaError(f"it is of type {found.kind}, and the converter's is {self.kind}")

    def _wrong_pin(self, found: str) -> ConfigurationError:
        pinned = f"version {self.pinned.version} of subject {self.pinned.subject}" if self.pinned else ""
        return ConfigurationError(
            "the pinned schema can't be used",
            registry=self.registry.url,
            expected=f"{pinned}, of type {self.kind}",
            found=found,
            todo="correct the converter's schema",
        )

    def _beside(self, schema: pa.Schema, made: pa.Schema) -> pa.Schema:
        kept = [each for each in schema if self.keep_column or each.name != self.column]
        return unique_names(pa.schema([*kept, *made], made.metadata), self.type)

    def _placed(self, batch: pa.RecordBatch, framed: Framed, decoded: Decoded) -> _Piece:
        """Decoded records beside the other columns, without those that are wrong."""
        records, rows = decoded.records, framed.rows
        rows = rows if decoded.numbers is None else rows[decoded.numbers]
        if decoded.wrong:
            wrong = framed.rows[np.fromiter(decoded.wrong, np.int64)]
            good = ~np.isin(rows, wrong)
            records, rows = records.filter(pa.array(good)), rows[good]
        marked = records.schema.with_metadata({SCHEMA_ID: str(framed.schema_id).encode()})
        self._known.last = marked
        return self._joined(batch, records.columns, marked, rows)

    def _nulls(self, batch: pa.RecordBatch, rows: NDArray[np.int64]) -> _Piece:
        if self._known.last is None and (len(rows) or self.pinned):
            self._known.last = self._pinned_decoder().schema if self.pinned else self._newest()
        last = self._known.last or pa.schema([])
        return self._joined(batch, [pa.nulls(len(rows), each.type) for each in last], last, rows)

    def _newest(self) -> pa.Schema:
        """The columns of the newest schema of the topic, as far as the registry knows one by its usual name."""
        topic = self._known.dataset.partition("@")[0]  # a dataset may be a partition of it
        if not topic:
            return pa.schema([])
        try:
            found = self._known.registry.latest(f"{topic}-{'key' if self.column == 'key' else 'value'}")
        except (UnknownSchemaError, UnusableSchemaError):
            return pa.schema([])
        decoder = self._decoder(found.schema_id)
        return pa.schema([]) if isinstance(decoder, str) else decoder.schema

    def _joined(
        self, batch: pa.RecordBatch, columns: Sequence[pa.Array], made: pa.Schema, rows: NDArray[np.int64]
    ) -> _Piece:
        schema = self._beside(batch.schema, made)
        kept = batch if self.keep_column else batch.drop_columns([self.column])
        taken = kept if len(rows) == batch.num_rows else kept.take(pa.array(rows))
        return _Piece(pa.RecordBatch.from_arrays([*taken.columns, *columns], schema=schema), pa.array(rows, pa.int64()))


@dataclass(frozen=True, slots=True)
class _Piece:
    records: pa.RecordBatch
    rows: pa.Array


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
