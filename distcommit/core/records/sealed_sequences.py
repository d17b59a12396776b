"""The commit steps of one dataset in one run, as bucket logs store them, and the names of such sequences.

The rules for changes are those of `log_records`.
"""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import SchemaIds, SkippedRange

TargetEpochs = dict[str, tuple[int, ...]]
"""By branch with a target of its own: the epochs that the target's ledger may have for the dataset (0: no row); empty
if they are not known."""


class StepBatch(Struct, frozen=True, array_like=True):
    """Consecutive steps of one registered type, as data.

    Attributes:
        type_name: the registered type.
        version: the version of the rows.
        rows: the MessagePack list of the steps' rows.
    """

    type_name: str
    version: int
    rows: bytes


class SealedSequence(Struct, frozen=True, array_like=True):
    """All commit steps of one dataset in one run. Its name is (dataset_urn, epoch), at most one per dataset and run.

    Attributes:
        dataset_urn: the dataset.
        epoch: the run that sealed the sequence.
        low: the watermark that the run planned on.
        high: the watermark that DONE sets.
        steps: the steps, in execution order.
        start: the first positions of partitions without a position in `low`.
        skipped: ranges that the sequence skips.
        records: the number of published records.
        files: the number of published files.
        partial_reason: why planned work units are missing from the sequence; empty if none is.
        content_sum: the content sum of its files (`sinks.files.content_sum`); empty if it is not known.
        schemas: the schema ids that the dataset's records may have from then on, by converter.
        targets: the epochs that targets have once the sequence is done.
        replaces: whether the sequence publishes a replacement (`stores.folders.tombstones`).
        run: the results of the planned work units; None if the sequence does not result from reading the source.
    """

    dataset_urn: str
    epoch: int
    low: Watermark | None
    high: Watermark | None
    steps: tuple[StepBatch, ...]
    start: dict[str, Position] = {}
    skipped: tuple[SkippedRange, ...] = ()
    records: int = 0
    files: int = 0
    partial_reason: str = ""
    content_sum: str = ""
    schemas: SchemaIds = {}
    targets: TargetEpochs = {}
    replaces: bool = False
    run: PreviousRun | None = None


class SequenceName(Struct, frozen=True, array_like=True):
    """The name of a sequence.

    Attributes:
        dataset_urn: the dataset.
        epoch: the epoch of the run that sealed it.
    """

    dataset_urn: str
    epoch: int


class PostponedSequence(Struct, frozen=True, array_like=True):
    """A sequence that a run left pending.

    Attributes:
        dataset_urn: the dataset.
        epoch: the run that sealed it.
        reason: why it is left pending, for operators.
        change: the number of this change of its steps, counted from 1; 0 if they are unchanged.
        steps: the changed step batches, by their index in the sequence.
    """

    dataset_urn: str
    epoch: int
    reason: str
    change: int = 0
    steps: dict[int, StepBatch] = {}
