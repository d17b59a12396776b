"""Coercion of batches to the columns of a table, or to the columns of earlier records."""

from __future__ import annotations

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.evolution import is_narrower
from distcommit.schemas.evolution_policy import list_reasons
from distcommit.schemas.storable_types import is_text


class SchemaCoercion:
    """The coercion of batches of one schema to the columns of a table. Columns of text and booleans keep their Arrow
    type.

    Args:
        targets: the table's columns, with their names in files.

    Raises:
        ConfigurationError: if the batches lack a column that must have values in the table.
    """

    def __init__(self, targets: pa.Schema, batches: pa.Schema) -> None:
        self._indices: list[int] = []
        fields = []
        for target in targets:
            index = batches.get_field_index(target.name)
            if index < 0 and not target.nullable:
                raise ConfigurationError(
                    "the table requires a value in a column that the records do not have",
                    id="RECORDS_NOT_STORABLE",
                    column=target.name,
                    todo="make the column optional, or add it with a converter",
                )
            self._indices.append(index)
            supplied = target.type if index < 0 else batches.field(index).type
            is_alike = pa.types.is_boolean(supplied) or is_text(
                supplied
            )  # Parquet stores all of Arrow's text types alike
            fields.append(target.with_type(supplied) if is_alike else target)
        self.schema = pa.schema(fields)

    def coerce(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the table's columns. Raises ConfigurationError if a value does not fit its column."""
        columns = [
            pa.nulls(batch.num_rows, field.type) if index < 0 else _cast(batch.column(index), field)
            for index, field in zip(self._indices, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def convert_to_pinned(batch: pa.RecordBatch, pinned_schema: pa.Schema) -> tuple[pa.RecordBatch, str]:
    """Convert records to the pinned schema. Missing columns become null, and other columns are dropped.

    Returns:
        The converted records and an empty text; if any value does not fit, the unchanged records and the reason to
        reject all of them.
    """
    columns, reasons = [], []
    for required in pinned_schema:
        indices = batch.schema.get_all_field_indices(required.name)
        column = batch.column(indices[0]) if len(indices) == 1 else pa.nulls(batch.num_rows, required.type)
        if column.null_count and not required.nullable:
            reasons.append(f"{required.name} is missing, and is not nullable")
        elif column.type != required.type and not is_narrower(column.type, required.type):
            reasons.append(f"{required.name} is {column.type} here, and {required.type} before")
        else:
            try:
                columns.append(column.cast(required.type))
            except pa.ArrowException as error:
                reasons.append(f"{required.name} can't be read as {required.type}: {error}")
    if reasons:
        return batch, f"can't be read with the pinned columns: {list_reasons(reasons)}"
    return pa.RecordBatch.from_arrays(columns, schema=pinned_schema), ""


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and values.null_count:
        raise ConfigurationError(
            "the table requires a value in a column that is null in a record",
            id="RECORDS_NOT_STORABLE",
            column=field.name,
            todo="make the column optional, or reject such records with the row checker not_null",
        )
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigurationError(
            "a value does not fit into the table's column",
            id="RECORDS_NOT_STORABLE",
            column=field.name,
            expected=str(field.type),
            found=f"{values.type}: {error}",
            todo="widen the column, make it optional, or reject such records with a row checker",
        ) from error
