"""The interface of a database's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from distcommit.sinks.databases.newer_rows import Newer


class Table(Protocol):
    """A table that is locked against ALTER until the transaction ends."""

    @property
    def shown(self) -> str:
        """The table's name in messages and in the ledger."""

    @property
    def identity(self) -> int:
        """A number that changes when the table is recreated, if the database permits."""

    def fit(self, schema: pa.Schema, *, add_columns: bool) -> None:
        """Check that the table takes these rows and their tags. With `add_columns`, first add missing columns and widen
        numbers. Raises RefusedError if the rows do not fit."""

    def copy(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Insert batches of one schema. Raises RefusedError if a value does not fit or the table drops rows."""

    def upsert(
        self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer, *, whole: bool = False
    ) -> None:
        """Replace rows with the same keys by newer ones; the last of several new rows counts. With `whole`, columns
        without a default that new rows lack become null. Raises the errors of `copy`, and RefusedError for a null
        key."""

    def delete(self, tags: Mapping[str, int]) -> int:
        """Delete the rows with these tags (empty: all rows); return their number."""

    def delete_older(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer) -> int:
        """Delete rows with these keys, which occur once, unless they are newer; return their number. Raises the errors
        of `upsert`."""

    def delete_before(self, column: str, value: int) -> None:
        """Delete rows whose value of an integer column is below `value`."""

    def inexact_keys(self, keys: Sequence[str]) -> list[str]:
        """Return the columns in which different texts can be equal."""

    def present(self, batch: pa.RecordBatch, keys: Sequence[str]) -> list[int]:
        """Return the indices of the batch's rows whose keys the table has."""
