"""Parallel calls: shared limit and order of results."""

from __future__ import annotations

import threading
import time

from distcommit.core.support.parallel import run_parallel


def test_nested_calls_share_the_limit() -> None:
    counting = threading.Lock()
    at_once = most = 0

    def call(_: int) -> None:
        nonlocal at_once, most
        with counting:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.005)
        with counting:
            at_once -= 1

    run_parallel(4, lambda _: run_parallel(8, call, range(8)), range(4))
    assert 4 < most <= 8
    most = 0
    run_parallel(4, lambda _: run_parallel(2, call, range(8)), range(4))
    assert most <= 4, "each has one call at a time"


def test_results_are_in_order_whichever_call_takes_longer() -> None:
    def late(number: int) -> int:
        time.sleep(0.01 * (number == 0))
        return number

    assert run_parallel(4, late, range(9)) == list(range(9))
