"""Visible records, counted from Parquet files alone, without code of the product or of any peer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Set
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.peers.records import NUMBER_CHARS, TIME_CHARS, topic_token

Numbers = npt.NDArray[np.int64]


class Counted(msgspec.Struct, frozen=True):
    """Result of an audit, in records.

    `missing` were sent and are nowhere, `duplicates` are the extra copies, `foreign` were never sent or are with
    another topic's. `unreadable` are files that are not Parquet.
    """

    sent: int
    found: int
    missing: int
    duplicates: int
    foreign: int
    unreadable: int = 0


def numbers_of(path: Path) -> tuple[Numbers, Numbers]:
    """Return the numbers of a file's records, and when each was sent, in milliseconds since the epoch."""
    value = pq.read_table(path, columns=["value"], partitioning=None).column("value").cast(pa.binary())
    number = pc.binary_slice(value, 0, NUMBER_CHARS)
    sent_ms = pc.binary_slice(value, NUMBER_CHARS + 1, NUMBER_CHARS + 1 + TIME_CHARS)
    first, second = (column.cast(pa.string()).cast(pa.int64()).to_numpy() for column in (number, sent_ms))
    return first, second


def audit(files: Iterable[Path], sent: int, topics: int) -> Counted:
    """Count the records of files, of which `sent` were sent to that many topics in turn."""
    times = np.zeros(sent, np.int64)
    result = foreign = unreadable = 0
    for path in files:
        try:
            numbers, _ = numbers_of(path)
        except pa.ArrowInvalid:
            unreadable += 1
            continue
        result += len(numbers)
        sent_numbers = numbers[(numbers >= 0) & (numbers < sent)]
        of_topics, counts = np.unique(sent_numbers % topics, return_counts=True)
        at_home = sum(
            int(n) for topic, n in zip(of_topics, counts, strict=True) if topic_token(int(topic)) in str(path)
        )
        foreign += len(numbers) - at_home
        np.add.at(times, sent_numbers, 1)
    return Counted(sent, result, int((times == 0).sum()), int((times[times > 1] - 1).sum()), foreign, unreadable)


class Watch:
    """Observes in a thread of its own when records become visible.

    Args:
        visible: returns the files that readers are shown now.
        most: numbers of records are below that.
        every_s: seconds between two checks.
    """

    def __init__(self, visible: Callable[[], Set[Path]], most: int, every_s: float = 0.25) -> None:
        self._visible, self._every_s = visible, every_s
        self._known: set[Path] = set()
        self._sent_ms, self._seen_ms = np.zeros(most, np.int64), np.zeros(most, np.int64)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.changed_s = time.monotonic()
        self.error = ""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait(self, first: int, end: int, quiet_s: float, timeout_s: float) -> bool:
        """Wait until all records from `first` to `end` are visible, and return whether they are.

        It gives up if nothing has become visible for `quiet_s`, or after `timeout_s`.
        """
        began = self.changed_s = time.monotonic()
        while not self._seen_ms[first:end].all():
            now = time.monotonic()
            if now > began + timeout_s or now > self.changed_s + quiet_s:
                return False
            time.sleep(0.02)
        return True

    def seen(self, first: int, end: int) -> int:
        """Return how many of these are visible."""
        return int(np.count_nonzero(self._seen_ms[first:end]))

    def delays_s(self, first: int, end: int) -> npt.NDArray[np.float64]:
        """Return the seconds from sending to being visible, of the visible records among these."""
        observed = self._seen_ms[first:end]
        delays: npt.NDArray[np.float64] = np.maximum(0, (observed - self._sent_ms[first:end])[observed > 0]) / 1000
        return delays

    def last_seen_s(self, first: int, end: int) -> float:
        """Return when the last of these became visible, in seconds since the epoch."""
        return float(self._seen_ms[first:end].max()) / 1000

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a file may be half there; the audit at the end is what counts
                self.error = f"{type(error).__name__}: {error}"

    def _look(self) -> None:
        new = self._visible() - self._known
        now_ms = time.time_ns() // 1_000_000
        for path in new:
            numbers, sent_ms = numbers_of(path)
            fresh = self._seen_ms[numbers] == 0
            self._seen_ms[numbers[fresh]], self._sent_ms[numbers[fresh]] = now_ms, sent_ms[fresh]
            self._known.add(path)
            self.changed_s = time.monotonic()
