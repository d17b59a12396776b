"""Values as keyed hashes: the same value has the same hash, and nobody without the key can find which."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field, SecretStr

from distcommit.constructs.columns import Columns, field_of, replaced
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Hash(ConverterSettings, frozen=True, extra="forbid", hide_input_in_errors=True):
    """Puts in place of each text or bytes of these columns its HMAC-SHA-256, as 64 hexadecimal digits; null stays null.

    Text is hashed as UTF-8. What a record was is elsewhere still, such as in the column that it was decoded of: drop
    that.

    Attributes:
        columns: which ones.
        key: at least 16 characters; `${VARIABLE}` in a job file, so that the file does not hold it. It is never shown.
            With another one the same value has another hash.
    """

    type: Literal["hash"]
    columns: tuple[str, ...] = Field(min_length=1)
    key: SecretStr = Field(min_length=16)

    def convert_columns(self, columns: Columns) -> Columns:
        for name in self.columns:
            field_of(columns, name, "hash", _has_bytes, "string or binary")
            columns = replaced(columns, name, pa.string())
        return columns

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        given = zip(schema.names, batch.columns, strict=True)
        columns = [self._hashed(column) if name in self.columns else column for name, column in given]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _hashed(self, column: pa.Array) -> pa.Array:
        key = self.key.get_secret_value().encode()
        encoded = column.dictionary_encode()  # each value is hashed once
        values = encoded.dictionary.cast(pa.large_binary()).to_pylist()
        hashes = pa.array([hmac.digest(key, value, "sha256").hex() for value in values], pa.string())
        return hashes.take(encoded.indices)


def _has_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind) or t.is_large_binary(kind))


SETTINGS = Hash
