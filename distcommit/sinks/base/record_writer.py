"""Base class of writers that take records one by one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from distcommit.core.interfaces.sink import Origins, SinkWriter

if TYPE_CHECKING:
    import pyarrow as pa


class RecordWriter(SinkWriter):
    """A writer of records as dicts of Python's own values, by column. For targets that take nothing else: making them
    costs several times what a batch does."""

    @abstractmethod
    def write_record(self, record: dict[str, Any]) -> None:
        """Takes one record."""

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        for record in batch.to_pylist():
            self.write_record(record)
