"""Entries of snapshots, from which readers learn how far each dataset is published."""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.watermark import Watermark

SnapshotName = tuple[int, int]
"""The epoch of the run that took the snapshot, and the moment of the run (`CutPhase`)."""


class DatasetSnapshot(Struct, frozen=True, array_like=True):
    """The published state of a dataset.

    Attributes:
        done_epoch: the newest epoch with published files.
        watermark: the watermark.
    """

    done_epoch: int
    watermark: Watermark | None


class BucketSnapshot(Struct, frozen=True):
    """The state of a bucket in a snapshot, as the bucket's owner read it.

    Attributes:
        bucket: the bucket.
        number: the number of the newest segment of its log.
        checksum: the checksum of that segment.
        deltas: the file names of the delta chain: a base and its successors.
        total: the checksum of the chain's content.
        open: the number of sequences that are not done.
        decided_open: whether a sequence that is not done belongs to a run of an all-or-none job that has decided to
            publish.
    """

    bucket: int
    number: int
    checksum: str
    deltas: tuple[str, ...]
    total: str
    open: int = 0
    decided_open: bool = False
