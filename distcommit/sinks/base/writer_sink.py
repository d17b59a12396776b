"""Base classes of sinks that have a writer and no committer, and of writers that take single records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.sink import Abilities, Origins, Sink, SinkWriter
from distcommit.core.interfaces.steps import CommitStep, StepContext

if TYPE_CHECKING:
    import pyarrow as pa


class WriterSink(Sink):
    """A sink that has nothing to commit: at-least-once, for jobs with `commit.delivery: at_least_once`.

    Its writers may make records visible at once. When `prepare_commit` has returned, the records must be durable; its
    result is not used. Records of an attempt that fails or dies stay at the target and are written again: the target
    then has them twice. None is missing.
    """

    abilities: ClassVar[Abilities] = Abilities(
        exactly_once=False, at_least_once=True, can_roll_back=False, atomic=False
    )

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        return ()


class RecordWriter(SinkWriter):
    """A writer of single records, each a dict of Python values by column.

    For targets without an interface for batches: conversion costs several times as much as writing a batch.
    """

    @abstractmethod
    def write_record(self, record: dict[str, Any]) -> None:
        """Take one record."""

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        for record in batch.to_pylist():
            self.write_record(record)
