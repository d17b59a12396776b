"""Decoded messages of a batch, and rows of nulls between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distcommit.constructs.registry.wire_format import Indices


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Decoded messages of one schema."""

    columns: Sequence[pa.Array]
    """Columns with as many values as `rows`."""
    schema: pa.Schema
    """Schema of the columns."""
    rows: Indices
    """Rows of the messages in the batch, ascending."""

    @classmethod
    def of_nulls(cls, schema: pa.Schema, rows: Indices) -> DecodedRows:
        return cls([pa.nulls(len(rows), field.type) for field in schema], schema, rows)

    def with_nulls(self, nulls: Indices) -> DecodedRows:
        """Return the messages and rows of nulls, in ascending order."""
        if not len(nulls):
            return self
        rows = np.concatenate([self.rows, nulls])
        order = np.argsort(rows, kind="stable")
        indices = pa.array(order, mask=order >= len(self.rows))
        return DecodedRows([column.take(indices) for column in self.columns], self.schema, rows[order])


def last_schema(decoded: Sequence[DecodedRows]) -> pa.Schema | None:
    return max(decoded, key=lambda decoded_rows: int(decoded_rows.rows[-1])).schema if decoded else None


def with_nulls(
    decoded: Sequence[DecodedRows], nulls: Indices, before: pa.Schema | None, otherwise: Callable[[], pa.Schema]
) -> list[DecodedRows]:
    """Insert rows of nulls. Each has the columns of the message before it.

    Args:
        decoded: messages of a batch by schema, each with at least one message.
        nulls: rows without a message, ascending.
        before: schema of the last message before the batch, for nulls at the start of the batch. If None, these nulls
            get the schema of the first message in the batch.
        otherwise: returns the schema of nulls if there is no message at all.
    """
    if not len(nulls):
        return list(decoded)
    if not decoded:
        return [DecodedRows.of_nulls(otherwise() if before is None else before, nulls)]
    rows = np.concatenate([decoded_rows.rows for decoded_rows in decoded])
    order = np.argsort(rows, kind="stable")
    owners = np.repeat(np.arange(len(decoded)), [len(decoded_rows.rows) for decoded_rows in decoded])[order]
    position = np.searchsorted(rows[order], nulls) - 1
    alike = (
        [
            number
            for number, decoded_rows in enumerate(decoded)
            if decoded_rows.schema.equals(before, check_metadata=True)
        ]
        if (before is not None)
        else [int(owners[0])]
    )
    owner = np.where(position < 0, alike[0] if alike else -1, owners[position])
    chunks = [decoded_rows.with_nulls(nulls[owner == number]) for number, decoded_rows in enumerate(decoded)]
    if before is not None and (owner < 0).any():
        chunks.append(DecodedRows.of_nulls(before, nulls[owner < 0]))
    return chunks
