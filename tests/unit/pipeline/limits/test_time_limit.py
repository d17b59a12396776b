"""Time limits of constructs: one that never ends fails its attempt, and the error names it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from distcommit.core.error_handling.error_text_classification import is_permanent
from distcommit.core.errors import TimeLimitError, error_text
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.branches.construct_chain import Chain
from distcommit.pipeline.branches.traced_batch import TracedBatch
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.pipeline.task_flow import Stage
from distcommit.testing.fakes.convert_batch import unit_of

SOON_S = 0.05


class Endless(Converter):
    """A converter that calls `does` after each batch."""

    def __init__(self, does: Callable[[], None]) -> None:
        self.does = does

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)
        self.does()


def loop() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(60)


def wait() -> None:
    threading.Event().wait(60)


def swallow() -> None:
    for _ in range(2):
        with suppress(TimeLimitError):
            time.sleep(60)


@pytest.mark.parametrize("does", [loop, sleep, wait])
def test_construct_that_does_not_end_fails(does: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    chain = Chain([Stage("quick", Endless(lambda: None)), Stage("stuck", Endless(does))], unit_of("orders"), SOON_S)
    with pytest.raises(TimeLimitError, match=r"construct=stuck.*at most 0\.05 s") as caught:
        chain.run([TracedBatch(pa.record_batch({"n": [1]}))])
    assert chain.at == "stuck"
    assert is_permanent(error_text(caught.value)), "another attempt would fail in the same way"
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_construct_that_swallows_the_time_limit_is_interrupted_again() -> None:
    began_s = time.monotonic()
    with construct_time_limit(SOON_S, "deaf"):
        swallow()
    assert time.monotonic() - began_s < 30


def test_construct_that_ends_in_time_is_not_interrupted() -> None:
    for seconds in (SOON_S, 0):
        with construct_time_limit(seconds, "quick"):
            pass
    time.sleep(2 * SOON_S)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_other_threads_have_no_limit() -> None:
    """Signals reach only the main thread."""
    interrupts: list[str] = []

    def work() -> None:
        with construct_time_limit(SOON_S, "elsewhere"):
            time.sleep(2 * SOON_S)
            interrupts.append("ended")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert interrupts == ["ended"]
