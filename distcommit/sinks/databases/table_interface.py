"""The interface of a database's tables to the committers of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from distcommit.sinks.databases.newer_rows import Newer


class Table(Protocol):
    """A table that no other session can alter until the transaction ends."""

    @property
    def shown(self) -> str:
        """The table's name in messages and in the ledger."""

    @property
    def identity(self) -> int:
        """A number that changes when the table is recreated, as far as the database permits."""

    def fit(self, schema: pa.Schema, *, add_columns: bool) -> None:
        """Check that the table takes rows of this schema and their tags. With `add_columns`, first add missing columns.
        Raises RefusedError if the table does not take them."""

    def copy(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Insert batches of one schema. Raises RefusedError if a value does not fit, or not all rows were inserted."""

    def upsert(
        self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer, *, whole: bool = False
    ) -> None:
        """Replace rows with the same keys by newer ones; of several new rows with the same keys the last one counts.
        With `whole`, the columns that the new rows lack become null, except those with a default. Raises the errors of
        `copy`, and RefusedError if a key is null."""

    def delete(self, tags: Mapping[str, int]) -> int:
        """Delete the rows with these tags, or all rows if `tags` is empty; return their number."""

    def delete_older(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer) -> int:
        """Delete the rows with the keys of these rows, unless they are newer; return their number. Each key occurs
        once. Raises the errors of `upsert`."""

    def delete_before(self, column: str, value: int) -> None:
        """Delete the rows whose value of an integer column is lower than this one."""

    def inexact_keys(self, keys: Sequence[str]) -> list[str]:
        """Return those of these columns in which two different texts can be equal, for instance by case."""

    def present(self, batch: pa.RecordBatch, keys: Sequence[str]) -> list[int]:
        """Return the places of the batch's rows whose keys the table has."""
