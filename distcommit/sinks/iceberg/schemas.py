"""Arrow schemas and tables' schemas: whether records fit a table, and how a batch becomes what the table stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.schema import Schema, promote
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from distcommit.model.errors import ConfigurationError

FORMAT_VERSION: Final = 2
_AS_THEY_ARE = (
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
"""Types that Parquet stores in one way, whichever of Arrow's holds them."""


def storable(schema: pa.Schema) -> pa.Schema:
    """The schema without what Iceberg has no type for and another type can hold: dictionaries, unsigned numbers; and
    without columns that are null in every row."""
    fields = [pa.field(field.name, _storable(field.type), field.nullable) for field in schema]
    return pa.schema([field for field in fields if not pa.types.is_null(field.type)])


def wanted_struct(schema: pa.Schema) -> StructType:
    """The Iceberg type of records of this schema, with ids that mean nothing.

    Raises:
        ConfigurationError: if Iceberg can't store a column.
    """
    fields: list[NestedField] = []
    for field in storable(schema):
        try:
            (found,) = _pyarrow_to_schema_without_ids(pa.schema([field]), format_version=FORMAT_VERSION).fields
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise ConfigurationError(
                "Iceberg can't store a column of this type",
                column=field.name,
                found=f"{field.type}: {error.__cause__ or error}",
                todo="convert the column before the sink (timestamps: at most microseconds, in UTC), or leave it out",
            ) from error
        fields.append(found)
    if not fields:
        raise ConfigurationError(
            "a table needs a column", expected="records with columns that are not null in every row", found=str(schema)
        )
    return StructType(*fields)


def lacking(have: IcebergType, want: IcebergType, path: str = "") -> Iterator[str]:
    """What of `want` does not fit into `have`, in words: columns that are not there, and types that are too narrow or
    others."""
    match have, want:
        case StructType(), StructType():
            there = {field.name: field for field in have.fields}
            for field in want.fields:
                name = f"{path}.{field.name}" if path else field.name
                if field.name not in there:
                    yield f"no column {name}"
                else:
                    yield from lacking(there[field.name].field_type, field.field_type, name)
        case ListType(), ListType():
            yield from lacking(have.element_type, want.element_type, f"{path}.element")
        case MapType(), MapType():
            yield from lacking(have.key_type, want.key_type, f"{path}.key")
            yield from lacking(have.value_type, want.value_type, f"{path}.value")
        case _:
            if str(want) == str(have):  # types of a table's metadata need not be equal to the same types made here
                return
            try:
                promote(want, have)
            except ResolveError:
                yield f"column {path} is {have}, and records have {want}"


class Fitting:
    """Makes of batches of one schema what is written to a table's files.

    Args:
        table: the table's schema, with names as they are in files.
        batches: the schema of the batches.

    Raises:
        ConfigurationError: if the table wants a column that batches have not.
    """

    def __init__(self, table: Schema, batches: pa.Schema) -> None:
        targets = schema_to_pyarrow(table, include_field_ids=True)
        self._indices: list[int] = []
        fields = []
        for wanted, target in zip(table.fields, targets, strict=True):
            index = batches.get_field_index(wanted.name)
            if index < 0 and wanted.required:
                raise ConfigurationError(
                    "the table wants a value where records have no column",
                    column=wanted.name,
                    todo="make the column optional, or have a converter add it",
                )
            self._indices.append(index)
            kept = index >= 0 and any(same(batches.field(index).type) for same in _AS_THEY_ARE)
            fields.append(target.with_type(batches.field(index).type) if kept else target)
        self.schema = pa.schema(fields)

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the table stores it.

        Raises:
            ConfigurationError: if a value does not fit into the column's type.
        """
        columns = [
            pa.nulls(batch.num_rows, field.type) if index < 0 else _cast(batch.column(index), field)
            for index, field in zip(self._indices, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and values.null_count:
        raise ConfigurationError(
            "the table wants a value where a record has none",
            column=field.name,
            todo="make the column optional, or reject such records with the row checker not_null",
        )
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(
            "a value does not fit into the table's column",
            column=field.name,
            expected=str(field.type),
            found=f"{values.type}: {error}",
            todo="widen the column, or reject such records with the row checker range",
        ) from error


def _storable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _storable(kind.value_type)
    return pa.int64() if kind in (pa.uint32(), pa.uint64()) else kind
