"""Topics that get records now and then, and a reader of whole commits that records when each is visible."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

import distcommit
from distcommit.core.errors import DistcommitError
from distcommit.core.watermark import as_offset
from distcommit.protocol.paths.store import snapshot_manifest_of

_TICKS_S = os.sysconf("SC_CLK_TCK")
_EACH_S = 0.05
"""Interval at which the reader checks for a newer snapshot."""

_SENT_WITHIN_S = 300
_TICK_S = 0.1
_PRODUCERS = 16
"""Interval of sends.

For each message librdkafka searches all partitions of its producer. A producer of thousands of partitions took a third
of a core from the measured processes.
"""


class Trickle:
    """Records of these topics of one partition, with the times at which each was produced and visible to a reader.

    Args:
        brokers: of the topics.
        topics: their names.
        rate: records a second, to randomly drawn topics.
        seed: of the drawing.
    """

    def __init__(self, brokers: str, topics: Sequence[str], rate: float, seed: int) -> None:
        settings = {"bootstrap.servers": brokers, "linger.ms": 5, "log_level": 0}
        self._producers = [Producer(settings) for _ in range(min(_PRODUCERS, len(topics)))]
        self._producer_of = dict(zip(topics, cycle(self._producers), strict=False))
        self._topics, self._rate, self._random = topics, rate, random.Random(seed)
        self._waiting: dict[str, deque[tuple[int, float]]] = {topic: deque() for topic in topics}
        self._lock = threading.Lock()
        self.errors: list[str] = []
        self.delays: list[float] = []
        self.produced = 0
        self._counts_from_s = 0.0

    @property
    def waiting(self) -> int:
        """Return the number of records that no reader has seen yet."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def send(self, topics: Iterable[str]) -> None:
        """Send one record to each, and wait for the broker's acknowledgement; later ones would count as trickled."""
        for topic in topics:
            self._produce(topic)
        if unacknowledged := self._flush(_SENT_WITHIN_S):
            self.errors.append(f"{unacknowledged} records were not taken within {_SENT_WITHIN_S} s")

    def go_on(self, seconds: float) -> None:
        """Produce for that long."""
        began_s, sent = time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            while sent < passed_s * self._rate:
                self._produce(self._random.choice(self._topics))
                sent += 1
            for producer in self._producers:
                producer.poll(0)
            time.sleep(_TICK_S)
        self._flush(60)

    def forget(self) -> None:
        """Ignore the records that were produced before now."""
        with self._lock:
            self.delays.clear()
            self._counts_from_s = time.time()

    def see(self, topic: str, position: int) -> None:
        """Record that a reader sees all records of the topic below this offset."""
        now_s = time.time()
        with self._lock:
            waiting = self._waiting.get(topic, deque())
            while waiting and waiting[0][0] < position:
                at_s = waiting.popleft()[1]
                if at_s >= self._counts_from_s:
                    self.delays.append(now_s - at_s)

    def _flush(self, seconds: float) -> int:
        return sum(producer.flush(seconds) for producer in self._producers)

    def _produce(self, topic: str) -> None:
        at_s = time.time()

        def noted(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self.errors.append(str(error))
                return
            with self._lock:
                self._waiting[topic].append((offset, at_s))

        value = f'{{"n": {self.produced}, "at": {at_s:.6f}}}'
        self._producer_of[topic].produce(topic, value, partition=0, on_delivery=noted)
        self.produced += 1


@contextmanager
def watched(job: Path, trickle: Trickle) -> Iterator[None]:
    """Read everything that the job has committed during the block, at each newer snapshot."""
    ended, failed = threading.Event(), list[Exception]()

    def watch() -> None:
        cuts, seen_last = job.parents[1] / "store" / "cuts", (0, 0)
        while not ended.wait(_EACH_S):
            with suppress(OSError):
                names = filter(None, map(snapshot_manifest_of, os.listdir(cuts)))
                if max(((epoch, int(phase)) for epoch, phase in names), default=seen_last) == seen_last:
                    continue
            try:
                cut = distcommit.read(job)
                seen_last = (cut.epoch, cut.phase)
            except DistcommitError:  # no snapshot yet, or deleted meanwhile: read again
                continue
            except Exception as error:  # noqa: BLE001 - told where the block ends
                failed.append(error)
                return
            for urn, dataset_snapshot in cut.datasets.items():
                if dataset_snapshot.watermark is not None:
                    trickle.see(urn, as_offset(dataset_snapshot.watermark.positions.get("0", 0)))

    thread = threading.Thread(target=watch, name="reader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor seconds of these processes, and of their ended children."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_S
