"""Making of batches of records what a table stores, column by column, or refusing them."""

from __future__ import annotations

import pyarrow as pa

from distcommit.core.errors import ConfigurationError

_AS_THEY_ARE = (
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
"""Types that Parquet stores in one way, whichever of Arrow's holds them."""


class Fitting:
    """Makes of batches of one schema what is written to a table's files.

    Args:
        targets: the table's columns, with names as they are in files; those that may not be null want a value.
        batches: the schema of the batches.

    Raises:
        ConfigurationError: if the table wants a column that batches have not.
    """

    def __init__(self, targets: pa.Schema, batches: pa.Schema) -> None:
        self._indices: list[int] = []
        fields = []
        for target in targets:
            index = batches.get_field_index(target.name)
            if index < 0 and not target.nullable:
                raise ConfigurationError(
                    "the table wants a value where records have no column",
                    column=target.name,
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
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigurationError(
            "a value does not fit into the table's column",
            column=field.name,
            expected=str(field.type),
            found=f"{values.type}: {error}",
            todo="widen the column, or make it optional; or turn such records away (a row checker)",
        ) from error
