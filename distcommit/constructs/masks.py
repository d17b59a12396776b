"""What classes of users answer by row."""

from __future__ import annotations

import pyarrow as pa

from distcommit.model.errors import ConfigurationError


def checked_mask(answer: object, batch: pa.RecordBatch, class_name: str) -> pa.BooleanArray:
    """The answer, if it has a boolean for each row.

    Raises:
        ConfigurationError: if it is something else.
    """
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if isinstance(answer, pa.BooleanArray) and len(answer) == batch.num_rows:
        return answer
    found = f"{len(answer)} of type {answer.type}" if isinstance(answer, pa.Array) else type(answer).__name__
    raise ConfigurationError(
        "a class does not answer for each row",
        class_name=class_name,
        expected=f"an array of {batch.num_rows} booleans",
        found=found,
        todo="correct the class",
    )
