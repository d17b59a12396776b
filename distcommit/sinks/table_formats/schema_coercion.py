"""Convert batches of records to the columns of a table's data files, or refuse them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from distcommit.core.errors import ConfigurationError

ALWAYS_CHANGED = "other writers changed the table during each try"
_STORED_ALIKE = (
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
"""Types that Parquet stores in one way, whichever of Arrow's types has them."""


class SchemaCoercion:
    """Converts batches of one schema to rows of a table's files.

    Args:
        targets: the table's columns, with the names that they have in files.
        batches: the schema of the batches.

    Raises:
        ConfigurationError: if a column of the table that requires values is missing in the batches.
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
            is_kept = index >= 0 and any(is_type(batches.field(index).type) for is_type in _STORED_ALIKE)
            fields.append(target.with_type(batches.field(index).type) if is_kept else target)
        self.schema = pa.schema(fields)

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the table's columns.

        Raises:
            ConfigurationError: if a value does not fit into its column.
        """
        columns = [
            pa.nulls(batch.num_rows, field.type) if index < 0 else _cast(batch.column(index), field)
            for index, field in zip(self._indices, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def misfit(table: str, columns: str, problems: Sequence[str], todo: str) -> ConfigurationError:
    """Return the error of records that a table's columns do not take."""
    return ConfigurationError(
        "records do not fit into the table",
        id="RECORDS_NOT_STORABLE",
        table=table,
        expected=columns[:500],
        found="; ".join(problems[:5]),
        todo=todo,
    )


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
