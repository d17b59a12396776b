"""The arriving records between two runs every few minutes: many topics, a little in each."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Producer
from xxhash import xxh3_64_intdigest

from benchmarks.workloads.topics import DAY_MS, FIRST_DAY_MS, make_topics, shown

_TEXT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """The arriving records between two runs.

    Attributes:
        topics: their number.
        most_files: a topic's records are of 1 to that many days, and a run writes a file for each, in the day's folder.
        fewest_records, most_records: of each file; between them as many small ones as large ones, by magnitude.
        value_bytes: of each record's value.
        seed: of all of it.
    """

    topics: int
    most_files: int = 4
    fewest_records: int = 100
    most_records: int = 10_000
    value_bytes: int = 200
    seed: int = 1

    def files(self) -> Iterator[tuple[int, int, int]]:
        """Return topic, day and records of each file that a run writes; the same for each run."""
        chance = random.Random(self.seed)
        least, most = math.log(self.fewest_records), math.log(self.most_records)
        for topic in range(self.topics):
            for day in range(chance.randint(1, self.most_files)):
                yield topic, day, round(math.exp(chance.uniform(least, most)))


class ArrivingRecords:
    """Topics of a broker, and a producer that fills them run by run. `digest` is the required content of a copy."""

    def __init__(self, brokers: str, load: Load) -> None:
        self.brokers, self._load, self._files = brokers, load, list(load.files())
        self.names = tuple(f"everyday-{number:05d}" for number in range(load.topics))
        self.files_a_run, self.records_a_run = len(self._files), sum(records for _, _, records in self._files)
        make_topics(brokers, self.names, 1)
        text = random.Random(load.seed).randbytes(_TEXT_BYTES // 2).hex().encode()
        self._text, self._sent, self._sum = text, 0, 0
        options = {"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        self._producer = Producer(options)

    @property
    def digest(self) -> str:
        """Return the digest of all sent values, as `topics.shown` forms it."""
        return shown(self._sent, self._sum)

    def send(self) -> None:
        """Send the records of one run, and wait for the broker's acknowledgement.

        Raises:
            RuntimeError: if it is missing.
        """
        errors: list[str] = []

        def noted(error: object, _: object) -> None:
            if error is not None:
                errors.append(str(error))

        for topic, day, records in self._files:
            name, time_ms = self.names[topic], FIRST_DAY_MS + day * DAY_MS
            for _ in range(records):
                value = self._value()
                while True:
                    try:
                        self._producer.produce(name, value, None, 0, noted, timestamp=time_ms)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            self._producer.poll(0)
        if self._producer.flush(300) or errors:
            raise RuntimeError(f"{len(errors)} records could not be produced: {errors[:1]}")

    def _value(self) -> bytes:
        start = self._sent * 7919 % (_TEXT_BYTES - self._load.value_bytes)
        value = b"%016d" % self._sent + self._text[start : start + self._load.value_bytes - 16]
        self._sent += 1
        self._sum += xxh3_64_intdigest(value)
        return value
