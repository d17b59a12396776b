"""What readers go by: how far each dataset is published, and what a task tells of a bucket for that."""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.watermark import Watermark

CutName = tuple[int, int]
"""The epoch of a cut's run, and where in it the cut stands (`CutPhase`)."""


class SeenDataset(Struct, frozen=True, array_like=True):
    """How far a dataset is published: `done_epoch` is the newest epoch of which files are live."""

    done_epoch: int
    watermark: Watermark | None


class SeenBucket(Struct, frozen=True):
    """A bucket as its owner has seen it, for the run's next cut.

    `number` and `checksum`: of the newest segment of its log then; `pieces`: file names of a base and what came after
    it, which say how far its datasets are, and `total` what these come to; `open`: how many sequences are not done, and
    `decided_open`: whether one of them is of a whole job that was decided to be published.
    """

    bucket: int
    number: int
    checksum: str
    pieces: tuple[str, ...]
    total: str
    open: int = 0
    decided_open: bool = False
