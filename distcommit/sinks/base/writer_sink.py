"""Base classes of sinks without a committer, and of writers of single records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.sink import Abilities, Origins, Sink, SinkWriter

if TYPE_CHECKING:
    import pyarrow as pa


class WriterSink(Sink):
    """A sink without commits, for `commit.delivery: at_least_once`.

    Writers must make all records durable in `prepare_commit`, whose result is ignored. Records of failed attempts stay
    and are written again.
    """

    abilities: ClassVar[Abilities] = Abilities(
        exactly_once=False, at_least_once=True, can_roll_back=False, atomic=False
    )

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        return ()


class RecordWriter(SinkWriter):
    """A writer of single records as dicts, which is several times slower than a writer of batches."""

    @abstractmethod
    def write_record(self, record: dict[str, Any]) -> None: ...

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        for record in batch.to_pylist():
            self.write_record(record)
