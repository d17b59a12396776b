"""Base of converters with a schema registry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distcommit.constructs.construct_settings import ConverterSettings, matching_settings
from distcommit.constructs.registry.decoded_rows import DecodedRows, last_schema, with_nulls
from distcommit.constructs.registry.registry_client import (
    RegisteredSchema,
    Registry,
    RegistrySettings,
    UnknownSchemaError,
    check_size,
    default_subject,
    registry_client_class,
)
from distcommit.constructs.registry.registry_schema_policy import AdmittedSchemas, DatasetEvolution, EvolutionSettings
from distcommit.constructs.registry.wire_format import Framed, split
from distcommit.core.error_handling.foreign_errors import foreign_errors
from distcommit.core.errors import ConfigurationError, DistcommitError, RecordError, error_text
from distcommit.core.interfaces.constructs import Converted, InferredSchemaStore
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, check_unique_names, find_column
from distcommit.schemas.schema_size_limits import MOST_LEVELS, UnusableSchemaError, too_deep
from distcommit.schemas.storable_types import is_bytes

SCHEMA_ID = b"schema_id"
"""Metadata key of converted schemas: the registered id."""
MAX_UNKNOWN = 200
"""Maximum number of missing schema ids in a work unit. Each costs a request."""


@dataclass(frozen=True, slots=True)
class Decoded:
    records: pa.RecordBatch
    """Decoded records, one for each of `numbers`."""
    numbers: NDArray[np.int64] | None
    """Index of the message of each record; None if each record has the index of its message."""
    wrong: Mapping[int, str]
    """Errors by message index. Records of these messages must not be used."""


class Decoder(Protocol):
    """Decoder of one schema's messages."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the decoded records; all columns may be null."""

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        """Yield a `Decoded` for each resulting Arrow schema."""


_KEEP = (
    "messages without fields need another column: keep one of the source's, or set the converter's keep_column: true"
)


class _Unknown(str):
    """Rejection reason of messages whose schema id the registry does not have."""

    __slots__ = ()


@dataclass(slots=True)
class _State:
    """State of a converter in this process, which is not pickled."""

    registry: Registry
    policy: EvolutionSettings
    """Policy of the current dataset."""
    decoders: dict[tuple[int, int], Decoder | str] = field(default_factory=dict)
    """Decoder, or why there is none, by ids of the writer's and the pinned schema (0 if none is pinned)."""
    pinned: dict[tuple[str, int], RegisteredSchema] = field(default_factory=dict)
    """Pinned schemas by subject and version."""
    last: pa.Schema | None = None
    """Columns of the previous record."""
    topic: str = ""
    """Topic of the current dataset."""
    schemas: AdmittedSchemas = field(default_factory=AdmittedSchemas)
    """Schemas of the dataset's records."""
    unknown: set[int] = field(default_factory=set)
    """Schema ids in the current work unit that the registry does not have."""

    def note_unknown(self, schema_id: int, registry: str) -> None:
        """Count a missing schema id; raises RecordError if there are too many."""
        self.unknown.add(schema_id)
        if len(self.unknown) > MAX_UNKNOWN:
            raise RecordError(
                "the records of a work unit have too many schema ids that the registry does not have",
                id="RECORD_SCHEMA_UNKNOWN",
                registry=registry,
                expected=f"at most {MAX_UNKNOWN}",
                found=f"{len(self.unknown)}, the last one {schema_id}",
                todo="check that this is the producers' registry, with all of its schemas",
            )


class RegistryConverter(
    EvolutionSettings,
    ConverterSettings,
    ignored_types=(cached_property,),
    populate_by_name=True,
):
    """Converter of a column of messages whose schemas are in a schema registry.

    A message's fields become columns behind the other columns. All of them may be null. A record whose value is null
    has the columns of the previous record, all null. If the work unit has no previous record, the columns come from the
    first of these that exists: the first record in the batch, the newest published schema of the dataset, the topic's
    default subject (`TOPIC-value` or `TOPIC-key`). If none exists, the record gets no columns. Records of several
    schemas are returned in several pieces, in the order of their first records. The metadata of the Arrow schema
    contains the registry's schema id.

    A value is rejected if it is not in the wire format, does not match its schema, or has a schema that is not in the
    registry or has no columns. A task requests each schema id once.

    Attributes:
        registry: the schema registry.
        datasets: policies of some datasets. All other datasets have the policy of the converter itself.
        column: the column that holds the messages.
        keep_column: whether the column stays beside the fields.
    """

    kind: ClassVar[str]
    registry: RegistrySettings
    datasets: tuple[DatasetEvolution, ...] = ()
    column: str = "value"
    keep_column: bool = False

    @cached_property
    def _state(self) -> _State:
        return _State(Registry(self.registry), self)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "_state"}}

    @abstractmethod
    def decoder(self, writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        """Return a decoder of the writer's messages, to the reader's columns if a reader is given.

        Raises:
            UnusableSchemaError: if the schema has no columns, or the two schemas do not fit.
        """

    def convert_columns(self, columns: Columns) -> Columns:
        find_column(columns, self.column, self.type, is_bytes, "binary")
        other_columns = columns.with_or_without(self.column, self.keep_column)
        if self.pinned is None or self.pinned.is_of_topic or self.datasets:
            registry_client_class()
            return Columns().with_fields(other_columns.fields)
        return check_unique_names(
            other_columns.with_fields([*other_columns.fields, *self._pinned_decoder().schema]), self.type, _KEEP
        )

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        find_column(batch.schema, self.column, self.type, is_bytes, "binary")
        messages = split(batch.column(self.column))
        rejected = dict(messages.rejected)
        all_rows: list[DecodedRows] = []
        for framed in messages.framed:
            decoder = self._admitted(framed.schema_id)
            if isinstance(decoder, str):
                rejected |= dict.fromkeys(framed.rows.tolist(), decoder)
                continue
            for part, decoded in _decoded(decoder, framed):
                rejected |= {int(part.rows[number]): reason for number, reason in decoded.wrong.items()}
                all_rows.append(_placed(part, decoded))
        state, decoded_rows = self._state, [rows for rows in all_rows if len(rows.rows)]
        chunks = with_nulls(decoded_rows, messages.nulls, state.last, self._without_messages)
        state.last = last_schema(decoded_rows) or (chunks[0].schema if chunks else state.last)
        for number, rows in enumerate(chunks or [DecodedRows.of_nulls(self._without_messages(), messages.nulls)]):
            yield self._joined(batch, rows, {} if number else rejected)

    def begin_work_unit(self, unit: WorkUnit) -> None:
        state = self._state
        state.last, state.schemas, state.unknown = None, AdmittedSchemas(), set()
        state.topic = unit.dataset_urn.partition("@")[0]  # a dataset may be a partition of it
        state.policy = matching_settings(state.topic, self.datasets) or self

    def use_schema_store(self, store: InferredSchemaStore) -> None:
        self._state.schemas.history.store = store

    def load_schema_ids(self, ids: Sequence[int]) -> None:
        self._state.schemas.ids = [*ids]

    def schema_ids(self) -> Sequence[int]:
        return tuple(self._state.schemas.ids)

    def close(self) -> None:
        state: _State | None = self.__dict__.get("_state")
        if state is not None:
            state.registry.close()
            state.decoders = {key: decoder for key, decoder in state.decoders.items() if not isinstance(decoder, str)}

    def _reader(self) -> RegisteredSchema | None:
        state, pinned_schema = self._state, self._state.policy.pinned
        if pinned_schema is None:
            return None
        version = pinned_schema.subject_of(state.topic, self.column), pinned_schema.version
        if version not in state.pinned:
            try:
                schema = state.registry.version(*version)
                self._check_kind(schema)
            except (UnknownSchemaError, UnusableSchemaError) as error:
                raise self._wrong_pin(str(error)) from error
            state.pinned[version] = schema
        return state.pinned[version]

    def _pinned_decoder(self) -> Decoder:
        reader = self._reader()
        decoder = self._decoder(reader.schema_id) if reader is not None else ""
        if isinstance(decoder, str):
            raise self._wrong_pin(decoder)
        return decoder

    def _admitted(self, schema_id: int) -> Decoder | str:
        """Return a decoder, or why messages are rejected; raises RecordError if the policy fails the work unit."""
        policy, schemas, reader = self._state.policy, self._state.schemas, self._reader()
        if reader is not None and reader.schema_id not in schemas.ids:
            schemas.ids.append(reader.schema_id)
        if policy.evolution == "fail":
            if reader is None:
                schemas.require(schema_id, self.registry.url)
            else:
                AdmittedSchemas([reader.schema_id]).require(schema_id, self.registry.url, "the pinned schema")
        decoder = self._decoder(schema_id)
        if isinstance(decoder, str) or policy.evolution != "evolve":
            return decoder
        return schemas.admit(schema_id, decoder.schema, self._columns_of, policy) or decoder

    def _columns_of(self, schema_id: int) -> pa.Schema | None:
        decoder = self._decoder(schema_id)
        return None if isinstance(decoder, str) else decoder.schema

    def _decoder(self, schema_id: int) -> Decoder | str:
        """Return a decoder, or why there is none; raises RecordError for too many missing ids."""
        state, reader = self._state, self._reader()
        key = schema_id, reader.schema_id if reader is not None else 0
        if key not in state.decoders:
            try:
                writer = state.registry.schema(schema_id)
                self._check_kind(writer)
                decoder: Decoder | str = _checked(self._create_decoder(writer, reader))
            except UnknownSchemaError as error:
                decoder = _Unknown(error)
            except UnusableSchemaError as error:
                decoder = f"schema id {schema_id}: {error}"
            state.decoders[key] = decoder
        if isinstance(state.decoders[key], _Unknown):
            state.note_unknown(schema_id, self.registry.url)
        return state.decoders[key]

    def _create_decoder(self, writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        """Create a decoder. Errors that are not DistcommitErrors become UnusableSchemaErrors."""
        try:
            with foreign_errors():
                return self.decoder(writer, reader)
        except (DistcommitError, UnusableSchemaError):
            raise
        except Exception as error:
            raise UnusableSchemaError(f"its decoder can't be created: {error_text(error, 500)}") from error

    def _check_kind(self, registered: RegisteredSchema) -> None:
        if registered.kind != self.kind:
            raise UnusableSchemaError(f"it is of type {registered.kind}; the converter requires {self.kind}")
        check_size(registered)

    def _wrong_pin(self, actual: str) -> ConfigurationError:
        pin, topic = self._state.policy.pinned, self._state.topic
        pinned_schema = f"version {pin.version} of subject {pin.subject_of(topic, self.column)}" if pin else ""
        return ConfigurationError(
            "the pinned schema can't be used",
            id="CONSTRUCT_SETTINGS_INVALID",
            registry=self.registry.url,
            expected=f"{pinned_schema}, of type {self.kind}",
            found=actual,
            todo="correct the converter's schema",
        )

    def _with_other_columns(self, schema: pa.Schema, created: pa.Schema) -> pa.Schema:
        other_columns = Columns.of(schema).with_or_without(self.column, self.keep_column)
        return check_unique_names(
            Columns.of(pa.schema([*other_columns.fields, *created], created.metadata)), self.type, _KEEP
        ).fields

    def _without_messages(self) -> pa.Schema:
        return self._pinned_decoder().schema if self._state.policy.pinned else self._state.last or self._newest()

    def _newest(self) -> pa.Schema:
        """Return the columns of the newest published schema, or of the default subject, or none."""
        for schema_id in reversed(self._state.schemas.ids):
            if (columns := self._columns_of(schema_id)) is not None:
                return columns
        topic = self._state.topic
        if not topic:
            return pa.schema([])
        try:
            newest = self._state.registry.latest(default_subject(topic, self.column))
        except (UnknownSchemaError, UnusableSchemaError):
            return pa.schema([])
        decoder = self._decoder(newest.schema_id)
        return pa.schema([]) if isinstance(decoder, str) else decoder.schema

    def _joined(self, batch: pa.RecordBatch, decoded: DecodedRows, rejected: Mapping[int, str]) -> Converted:
        schema, rows = self._with_other_columns(batch.schema, decoded.schema), decoded.rows
        other_columns = batch if self.keep_column else batch.drop_columns([self.column])
        selected = other_columns if len(rows) == batch.num_rows else other_columns.take(pa.array(rows))
        records = pa.RecordBatch.from_arrays([*selected.columns, *decoded.columns], schema=schema)
        return Converted(records, pa.array(rows, pa.int64()), rejected)


def _placed(framed: Framed, decoded: Decoded) -> DecodedRows:
    records, rows = decoded.records, framed.rows
    rows = rows if decoded.numbers is None else rows[decoded.numbers]
    if decoded.wrong:
        wrong = framed.rows[np.fromiter(decoded.wrong, np.int64)]
        good = ~np.isin(rows, wrong)
        records, rows = records.filter(pa.array(good)), rows[good]
    marked = records.schema.with_metadata({SCHEMA_ID: str(framed.schema_id).encode()})
    return DecodedRows(records.columns, marked, rows)


def _decoded(decoder: Decoder, framed: Framed) -> Iterator[tuple[Framed, Decoded]]:
    """Decode messages; if that fails, bisect and reject, except for errors of the environment."""
    waiting = [framed]
    while waiting:
        part = waiting.pop()
        try:
            with foreign_errors():
                chunks = [*decoder.decode(part)]
        except DistcommitError:
            raise
        except Exception as error:  # noqa: BLE001 - of any decoder or library
            half = len(part.rows) // 2
            if half:
                waiting += [part.only(slice(half, None)), part.only(slice(0, half))]
                continue
            wrong = {0: f"its decoder fails: {error_text(error, 500)}"}
            chunks = [Decoded(pa.RecordBatch.from_pylist([], schema=decoder.schema), np.empty(0, np.int64), wrong)]
        yield from ((part, decoded) for decoded in chunks)


def _checked(decoder: Decoder) -> Decoder:
    """Return the decoder; raises UnusableSchemaError if records are too deep to be stored."""
    if column := too_deep(decoder.schema):
        raise UnusableSchemaError(f"field {column} has more than {MOST_LEVELS} levels, more than files can store")
    return decoder
