"""The converter `json_schema`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.json_decoding.json_reader import JsonReader
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.registry_converter import Decoded, Decoder, RegistryConverter
from distcommit.constructs.registry.wire_format import Framed
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.install_command import install_command
from distcommit.schemas.column_types import stored_type
from distcommit.schemas.schema_size_limits import UnusableSchemaError


class _JsonSchemaDecoder:
    def __init__(self, schema: pa.Schema, required: frozenset[str]) -> None:
        self._required = sorted(required)
        self.schema = pa.schema([(field.name, stored_type(field.type)) for field in schema])
        try:
            self._reader = JsonReader(schema)
        except (ValueError, TypeError) as error:
            raise UnusableSchemaError(f"the schema has no columns: {error}") from error

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        read = self._reader.read(framed.messages())
        records = pa.RecordBatch.from_arrays(read.columns, schema=self.schema)
        numbers = np.arange(len(framed.rows)) if read.rows is None else read.rows.to_numpy()
        wrong = dict(read.rejected)
        for name in self._required:
            for number in numbers[np.asarray(pc.is_null(records.column(name)))].tolist():
                wrong.setdefault(number, f"{name} is missing, but required")
        yield Decoded(records, numbers, wrong)


class JsonSchemaConverter(RegistryConverter, ignored_types=(cached_property,), populate_by_name=True):
    """Converter of JSON messages whose schemas are in a schema registry.

    It checks types, and that required properties at the top level exist; they must not be null unless null is one of
    their types. Other rules of the schema are not checked: use row checkers. Values are read as by the converter
    `json`. With `evolution: pin`, a message is read with the pinned schema's columns.
    """

    type: Literal["json_schema"]
    kind: ClassVar[str] = "JSON"

    def decoder(self, writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        try:
            from distcommit.constructs.registry.json_schema_columns import (  # noqa: PLC0415 - an extra
                check_readable,
                columns_of,
            )
        except ImportError as error:
            raise ConfigurationError(
                "the reader of JSON schemas is not installed",
                id="PACKAGE_MISSING",
                found=str(error),
                todo=f"run `{install_command('registry')}` on the driver and on all executors",
            ) from error
        schema, required = columns_of(writer)
        if reader is not None and reader.schema_id != writer.schema_id:
            pinned_schema, required = columns_of(reader)
            check_readable(schema, pinned_schema, required)
            schema = pinned_schema
        return _JsonSchemaDecoder(schema, required)
