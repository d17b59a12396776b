"""Positions that are lists, and work units of which it is not known how far they go, as they were first written."""

from __future__ import annotations

from pathlib import Path

from distcommit.stores.segment import decode_segment, encode_segment
from distcommit.stores.tables import decode_plan, encode_plan
from tests.golden import samples
from tests.golden.make import GOLDEN_16, make_16
from tests.golden.stored_bytes import PATH


def test_composite_positions_in_a_log_are_read_and_written_alike() -> None:
    data = (GOLDEN_16 / "set-watermark.seg").read_bytes()
    assert decode_segment(data, PATH) == samples.COMPOSITE_SEGMENT
    assert encode_segment(samples.COMPOSITE_SEGMENT) == data


def test_a_plan_without_an_expected_high_is_read() -> None:
    plan = decode_plan((GOLDEN_16 / "plan.parquet").read_bytes(), PATH)
    assert plan == samples.OPEN_ENDED_PLAN
    assert decode_plan(encode_plan(plan), PATH) == plan


def test_the_same_files_are_made(tmp_path: Path) -> None:
    make_16(tmp_path / "16")
    assert {path.name for path in (tmp_path / "16").iterdir()} == {path.name for path in GOLDEN_16.iterdir()}
