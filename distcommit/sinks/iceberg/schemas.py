"""Whether records fit Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids
from pyiceberg.schema import promote
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.column_names import ColumnNames, check_fields
from distcommit.schemas.table_field_comparison import InnerFields, TableField, missing_from_table
from distcommit.sinks.table_formats.table_refusals import no_columns

FORMAT_VERSION: Final = 2
_NAMES = ColumnNames("Iceberg")


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with Iceberg's types, without null columns."""
    fields = [pa.field(field.name, _storable(field.type), field.nullable) for field in schema]
    return pa.schema([field for field in fields if not pa.types.is_null(field.type)])


def required_struct(schema: pa.Schema) -> StructType:
    """Return the Iceberg type of records, with arbitrary ids. Raises ConfigurationError if no column remains or one is
    not allowed."""
    fields: list[NestedField] = []
    for field in storable(schema):
        try:
            if pa.types.is_decimal(field.type) and not 0 <= field.type.scale <= field.type.precision:
                raise ValueError("the scale must be between 0 and the precision")
            (nested_field,) = _pyarrow_to_schema_without_ids(pa.schema([field]), format_version=FORMAT_VERSION).fields
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise ConfigurationError(
                "Iceberg can't store a column of this type",
                id="COLUMN_UNSUPPORTED",
                column=field.name,
                found=f"{field.type}: {error.__cause__ or error}",
                todo="convert the column before the sink (timestamps: at most microseconds, in UTC), or leave it out",
            ) from error
        fields.append(nested_field)
    check_names(storable(schema))
    if not fields:
        raise no_columns(str(schema))
    return StructType(*fields)


def check_names(schema: pa.Schema) -> None:
    """Raise ConfigurationError if a name is empty, or two differ only by case."""
    _NAMES.check(schema.names)
    check_fields(schema, _NAMES.database)


def inner_fields(kind: IcebergType) -> InnerFields[IcebergType]:
    match kind:
        case StructType():
            return InnerFields("struct", [*map(_field, kind.fields)])
        case ListType():
            return InnerFields("list", [_field(kind.element_field)])
        case MapType():
            return InnerFields("map", [_field(kind.key_field), _field(kind.value_field)])
    return InnerFields()


def holds(have: IcebergType, want: IcebergType) -> bool:
    """Return whether type `have` can hold values of type `want`."""
    if str(want) == str(have):  # types of metadata need not be equal to the same types created here
        return True
    try:
        promote(want, have)
    except ResolveError:
        return False
    return True


def lacking(have: IcebergType, want: IcebergType) -> Iterator[str]:
    """Yield the columns of `want` that `have` lacks or has too narrow."""
    return missing_from_table(have, want, inner_fields, holds)


def _field(field: NestedField) -> TableField[IcebergType]:
    has_default = field.initial_default is not None
    return TableField(field.field_id, field.name, field.field_type, field.required, has_default)


def _storable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _storable(kind.value_type)
    return pa.int64() if kind in (pa.uint32(), pa.uint64()) else kind
