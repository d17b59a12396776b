"""A cut and a piece of it, as version 1 writes them."""

from __future__ import annotations

from distcommit.model.cuts import SeenBucket, SeenDataset
from distcommit.model.log_records import CutPhase
from distcommit.model.watermark import Watermark
from distcommit.stores.cut_pieces import Piece
from distcommit.stores.cuts import BucketInCut, CutRoot

PIECE = Piece(
    version=1,
    bucket=3,
    is_base=True,
    datasets={
        "orders": SeenDataset(7, Watermark({"0": 1200, "1": 800}, "topic-id")),
        "café/東京": SeenDataset(5, Watermark({"part": ("2024-01-01", 3)})),
        "empty": SeenDataset(6, None),
    },
)
SEEN = SeenBucket(
    bucket=3,
    number=41,
    checksum="0123456789abcdef",
    pieces=("0000000007-00003-000000000041-fedcba9876543210.json",),
    total="00112233aabbccdd",
    open=1,
    decided_open=False,
)
ROOT = CutRoot(
    version=1,
    epoch=7,
    phase=CutPhase.ENDED,
    run_id="20240101T000000-0123456789ab",
    time_ms=1_704_067_200_000,
    generation=1,
    parent=(7, 1),
    repeats=False,
    settled=False,
    buckets={3: BucketInCut(7, SEEN)},
)
