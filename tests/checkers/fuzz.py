"""Fuzzing: damaged bytes to every reader of stored bytes.

Each must return a value or raise its documented error, soon, and must not allocate memory for what a length field
claims. Each input follows from the seed and its number, so that `input_of(seed, number)` replays a failure.
"""

from __future__ import annotations

import base64
import logging
import multiprocessing
import random
import resource
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import msgspec

from distcommit.core.errors import UnknownVersionError
from tests.checkers.damaged_bytes import INNER, damaged
from tests.golden.stored_bytes import READERS, Reader

_MEMORY_BYTES = 1 << 30
"""Additional memory that the reading process may allocate."""
_INPUT_S = 20
_START_S = 120
_FAILURES_KEPT = 50


class Failure(msgspec.Struct, frozen=True):
    """An input that a reader did not answer as documented. `input`: base64, empty if it is above 64 KiB."""

    reader: str
    number: int
    error: str
    size_bytes: int
    input: str


class _TooLongError(BaseException):
    """The reader exceeded its time. Not an Exception: no reader may handle it."""


def fuzz(inputs: int, seed: int, seconds: float) -> dict[str, Any]:
    """Give readers damaged bytes, in a process of its own with bounded memory.

    Args:
        inputs: their number.
        seed: chooses them.
        seconds: a time limit.

    Returns:
        plain values: `inputs` tried, `readers` with inputs of each, `failures` (different ones), `seconds`, `refused`
            (inputs answered by a documented error), `peak_bytes` (growth of the process's resident memory).
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    place: Any = context.Value("q", -1, lock=False)
    process = context.Process(target=_read_all, args=(inputs, seed, seconds, place, sender), daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(seconds + _INPUT_S + _START_S):
            result: dict[str, Any] = receiver.recv()
            return result
        error = "the reader hangs"
    except EOFError:
        error = "the process died"
    finally:
        process.kill()
        process.join()
        receiver.close()
    reader, data = input_of(seed, max(place.value, 0))
    failure = _failure(reader, place.value, f"{error} (exit code {process.exitcode})", data)
    return {
        "inputs": place.value + 1,
        "readers": {},
        "failures": [msgspec.to_builtins(failure)],
        "seconds": seconds,
        "refused": 0,
        "peak_bytes": 0,
    }


def input_of(seed: int, number: int) -> tuple[Reader, bytes]:
    """Return the reader and the bytes of one input."""
    rng = random.Random(f"{seed}:{number}")
    reader = READERS[number % len(READERS)]
    if reader.name in INNER and rng.random() < 0.5:
        return reader, INNER[reader.name](rng)
    return reader, damaged(rng.choice(reader.samples), rng)


def wrong_answer(reader: Reader, data: bytes) -> tuple[str, bool]:
    """Return the reader's undocumented answer, if any, and whether it refused the bytes."""
    try:
        reader.read(data)
    except reader.may_raise as error:
        if reader.covers_version and isinstance(error, UnknownVersionError):
            return f"damage is reported as another version: {error}"[:300], True
        return "", True
    except Exception as error:  # noqa: BLE001  # any other error is the finding
        return f"{type(error).__name__}: {error}"[:300], True
    except _TooLongError:
        return f"no answer in {_INPUT_S} s", True
    return "", False


def _read_all(inputs: int, seed: int, seconds: float, place: Any, sender: Connection) -> None:
    logging.disable(logging.CRITICAL)
    for reader in READERS:  # imports and pools first: their memory is not the inputs'
        wrong_answer(reader, reader.samples[0])
    resource.setrlimit(resource.RLIMIT_AS, (_virtual_bytes() + _MEMORY_BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _too_long)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    counts = dict.fromkeys((reader.name for reader in READERS), 0)
    failures: dict[tuple[str, str], Failure] = {}
    refused = 0
    for number in range(inputs):
        if time.monotonic() - began >= seconds:
            break
        place.value = number
        reader, data = input_of(seed, number)
        signal.setitimer(signal.ITIMER_REAL, _INPUT_S)
        error, was_refused = wrong_answer(reader, data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        counts[reader.name] += 1
        refused += was_refused
        if error:
            earlier = failures.get((reader.name, error[:40]))
            if earlier is None or len(data) < earlier.size_bytes:
                failures[reader.name, error[:40]] = _failure(reader, number, error, data)
    sender.send(
        {
            "inputs": sum(counts.values()),
            "readers": counts,
            "failures": [msgspec.to_builtins(failure) for failure in failures.values()][:_FAILURES_KEPT],
            "seconds": round(time.monotonic() - began, 2),
            "refused": refused,
            "peak_bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024,
        }
    )
    sender.close()


def _failure(reader: Reader, number: int, error: str, data: bytes) -> Failure:
    shown = base64.b64encode(data).decode() if len(data) <= 64 << 10 else ""
    return Failure(reader.name, number, error, len(data), shown)


def smallest(reader: Reader, data: bytes, same: Callable[[str], bool]) -> bytes:
    """Remove parts of the input as long as the reader's wrong answer stays the same."""
    step = max(1, len(data) // 2)
    while True:
        place = 0
        while place < len(data):
            less = data[:place] + data[place + step :]
            if same(wrong_answer(reader, less)[0]):
                data = less
            else:
                place += step
        if step == 1:
            return data
        step //= 2


def _too_long(number: int, frame: FrameType | None) -> None:
    raise _TooLongError


def _virtual_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
