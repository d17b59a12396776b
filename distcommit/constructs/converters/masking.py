"""Converters that hide values."""

from __future__ import annotations

import hmac
from abc import abstractmethod
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, SecretStr

from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, find_column, with_column_type
from distcommit.schemas.storable_types import is_string, is_text


class _Masking(ConverterSettings):
    """Base of converters that hide the values of some columns.

    Attributes:
        columns: the columns.
    """

    columns: tuple[str, ...] = Field(min_length=1)

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        assert output_schema is not None
        supplied = zip(output_schema.names, batch.columns, strict=True)
        columns = [self._hidden(column) if name in self.columns else column for name, column in supplied]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=output_schema))

    @abstractmethod
    def _hidden(self, column: pa.Array) -> pa.Array: ...


class Hash(_Masking, hide_input_in_errors=True):
    """Converter that replaces text and bytes by their HMAC-SHA-256, as 64 hexadecimal digits. Null stays null.

    Text is hashed as UTF-8. Equal values have equal hashes. The value may still be in another column, such as the one
    that this column was decoded from: drop that column.

    Attributes:
        key: the secret key. Give it as `${VARIABLE}`, so that the job file does not contain it. It is never shown.
            Another key gives other hashes.
    """

    type: Literal["hash"]
    key: SecretStr = Field(min_length=16)

    def convert_columns(self, columns: Columns) -> Columns:
        for name in self.columns:
            find_column(columns, name, "hash", is_text, "string or binary")
            columns = with_column_type(columns, name, pa.string())
        return columns

    def _hidden(self, column: pa.Array) -> pa.Array:
        key = self.key.get_secret_value().encode()
        encoded = column.dictionary_encode()  # each distinct value is hashed once
        values = encoded.dictionary.cast(pa.large_binary()).to_pylist()
        hashes = pa.array([hmac.digest(key, value, "sha256").hex() for value in values], pa.string())
        return hashes.take(encoded.indices)


class Mask(_Masking):
    """Converter that replaces text of any length by `****`, and values of other types by null. Null stays null.

    The value may still be in another column, such as the one that this column was decoded from: drop that column.

    Attributes:
        keep_last: how many characters at the end of a text stay visible, if the text has more than twice as many.
    """

    type: Literal["mask"]
    keep_last: int = Field(default=0, ge=0)

    def convert_columns(self, columns: Columns) -> Columns:
        for name in self.columns:
            predicate = is_string if self.keep_last else _is_any
            field = find_column(columns, name, "mask", predicate, "string, with keep_last")
            nullable = field.nullable or not is_string(field.type)
            columns = with_column_type(columns, name, field.type, nullable=nullable)
        return columns

    def _hidden(self, column: pa.Array) -> pa.Array:
        if not is_string(column.type):
            return pa.nulls(len(column), column.type)
        shown = pa.scalar("", column.type)
        if self.keep_last:
            is_long = pc.greater(pc.utf8_length(column), 2 * self.keep_last)
            shown = pc.if_else(is_long, pc.utf8_slice_codeunits(column, -self.keep_last), "")
        masked = pc.binary_join_element_wise(pa.scalar("****", column.type), shown, pa.scalar("", column.type))
        return pc.if_else(pc.is_null(column), pa.scalar(None, column.type), masked)


def _is_any(kind: pa.DataType) -> bool:
    return True
