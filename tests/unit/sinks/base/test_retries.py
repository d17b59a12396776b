"""Retries at targets: at once, then after growing random delays."""

from __future__ import annotations

import pytest

from distcommit.sinks.base import retries


def test_waits_are_random_and_grow_to_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[object] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("random.uniform", lambda low, high: (low, high))
    assert list(retries.tries(12, first_wait_s=0.02)) == [*range(1, 13)]
    assert slept == [(0, min(0.02 * 2**turn, 2.0)) for turn in range(11)]


def test_first_success_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    for number in retries.tries():
        assert number == 1
        break
