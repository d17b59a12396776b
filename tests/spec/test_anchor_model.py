"""The model of anchors: no false alarm without a disaster, no undetected disaster, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.anchor_model import NAIVE, endings, is_wrong, tally

MOST_PLACES, SOME_PLACES = 3, 9
REFUSALS = {
    "log of a: named",
    "job log: refused: store older than its output",
    "job log: refused: store older than its output: the end of a run",
    "store: refused: store older than its output",
    "store: refused: store older than its output: the end of a run",
    "output: refused: output older than its store",
    "output: refused: output older than its store: a file of a run that died",
    "output: refused: output emptied, or elsewhere",
    "output emptied: refused: output older than its store",
}
LIMITS = {
    "log of a: (known: put back while a run slept that then went on)",
    "store: (known: copied in the midst of a run that then died)",
    "store: (known: what was set by hand since the copy is lost with it)",
    "store: (known: put back while a run slept that then went on)",
    "output: (known: put back while a run slept that then went on)",
}


def holds(stride: int) -> None:
    result = tally(stride=stride)
    assert not [result.examples[ending] for ending in result.counts if is_wrong(ending)]
    assert set(result.counts) >= REFUSALS | {"no disaster: fine", "log of a: harmless"}
    assert {ending for ending in result.counts if "known" in ending} <= LIMITS


def test_restored_part_is_rejected_or_harmless_and_there_is_no_false_alarm() -> None:
    holds(SOME_PLACES)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_restored_part_is_rejected_or_harmless_after_crashes_at_many_places() -> None:
    holds(MOST_PLACES)


@pytest.mark.parametrize("naive", [naive for naive, _ in NAIVE])
def test_naive_anchor_rule_breaks(naive: str) -> None:
    assert next((history.acts for ending, history in endings(naive, 6) if is_wrong(ending)), None)
