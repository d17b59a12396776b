"""Entries of snapshots, from which readers learn how far each dataset is published."""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.watermark import Watermark

SnapshotName = tuple[int, int]
"""The epoch of the snapshot's run, and its place in the run (`CutPhase`)."""


class DatasetSnapshot(Struct, frozen=True, array_like=True):
    """How far a dataset is published.

    Attributes:
        done_epoch: the newest epoch with published files.
        watermark: the watermark.
    """

    done_epoch: int
    watermark: Watermark | None


class BucketSnapshot(Struct, frozen=True):
    """A bucket as its owner read it for the run's next snapshot.

    Attributes:
        bucket: the bucket.
        number: the number of the newest segment of its log.
        checksum: the checksum of that segment.
        deltas: the file names of the delta chain: a base and its successors.
        total: the checksum of the chain's content.
        open: the number of sequences that are not done.
        decided_open: whether one of these belongs to an atomic job whose publication was decided.
    """

    bucket: int
    number: int
    checksum: str
    deltas: tuple[str, ...]
    total: str
    open: int = 0
    decided_open: bool = False
