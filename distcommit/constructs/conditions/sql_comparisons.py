"""Conditions of SQL that Arrow answers as DuckDB does, which takes a millisecond for any query.

These are columns of text compared with text, and columns of signed whole numbers with whole numbers, joined by AND and
OR. Whether they fit a schema is for DuckDB to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARE: Mapping[str, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]] = {
    "COMPARE_EQUAL": pc.equal,
    "COMPARE_NOTEQUAL": pc.not_equal,
    "COMPARE_LESSTHAN": pc.less,
    "COMPARE_LESSTHANOREQUALTO": pc.less_equal,
    "COMPARE_GREATERTHAN": pc.greater,
    "COMPARE_GREATERTHANOREQUALTO": pc.greater_equal,
}
_JOIN: Mapping[str, Callable[[pa.Array, pa.Array], pa.BooleanArray]] = {
    "CONJUNCTION_AND": pc.and_kleene,
    "CONJUNCTION_OR": pc.or_kleene,
}


def answered(condition: Mapping[str, Any], batch: pa.RecordBatch) -> pa.BooleanArray | None:
    """By row whether a condition is true; null: neither true nor false. None if DuckDB has to be asked.

    Args:
        condition: as DuckDB's `json_serialize_sql` has it.
        batch: the records.
    """
    kind = condition["type"]
    if kind in _JOIN:
        found = [answered(each, batch) for each in condition["children"]]
        return None if any(each is None for each in found) else reduce(_JOIN[kind], found)
    if kind not in _COMPARE:
        return None
    asked, literal = condition["left"].get("column_names", []), condition["right"].get("literal", {})
    columns = [column for name, column in zip(batch.schema.names, batch.columns, strict=True) if _is(name, asked)]
    value = _value(literal, columns[0].type) if len(columns) == 1 else None
    return None if value is None else _COMPARE[kind](columns[0], value)


def _is(name: str, asked: Sequence[str]) -> bool:
    return [name.lower()] == [part.lower() for part in asked]


def _value(literal: Mapping[str, str], of: pa.DataType) -> pa.Scalar | None:
    """What a column of that type is compared with."""
    kind, text = literal.get("kind"), literal.get("text", "")
    if kind == "STRING" and pa.types.is_string(of):
        return pa.scalar(text, pa.string())
    if kind == "INTEGER" and pa.types.is_signed_integer(of) and text.removeprefix("-").isdecimal() and len(text) < 19:
        return pa.scalar(int(text), pa.int64())
    return None
