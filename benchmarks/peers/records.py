"""Records with a distinct number each, sent to any number of topics in turn."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

CLIENT = "benchmark-records"
"""Client name of the sender of records at brokers."""
NUMBER_CHARS, TIME_CHARS = 12, 13
_TEXT_CHARS = 1 << 20
_TOPICS_AT_ONCE = 200
_FLUSH_S = 120.0


def topic_token(number: int) -> str:
    """Return the end of the name of the topic with that number; no other topic's name or path has it."""
    return f"t{number:05d}"


@dataclass
class Stream:
    """Topics `<prefix>.t00000` and on, of one partition, and the records that were sent to them.

    `sent` records have the numbers from 0 on, number n goes to topic n modulo `topics`. A value is the number in 12
    digits, a space, the milliseconds of its sending in 13, a space, and text that a seed chooses and that compresses to
    about three quarters.

    Args:
        brokers: the clients' setting.
        prefix: of the topics' names; no other stream has it.
        topics: their number.
        value_bytes: bytes of a value.
        seed: of the text.
    """

    brokers: str
    prefix: str
    topics: int
    value_bytes: int = 200
    seed: int = 1
    sent: int = 0
    _text: str = field(init=False, repr=False)
    _producer: Producer = field(init=False, repr=False)
    _errors: list[str] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        self._text = random.Random(self.seed).randbytes(_TEXT_CHARS // 2).hex()
        self._producer = Producer(
            {
                "bootstrap.servers": self.brokers,
                "client.id": CLIENT,
                "linger.ms": 20,
                "enable.idempotence": True,  # a restarted broker must not cause duplicates
                "queue.buffering.max.messages": 200_000,
                "log_level": 0,
            }
        )

    def name(self, number: int) -> str:
        """Return the name of the topic with that number."""
        return f"{self.prefix}.{topic_token(number)}"

    def make_topics(self) -> None:
        """Create the topics, empty."""
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for begin in range(0, self.topics, _TOPICS_AT_ONCE):
            numbers = range(begin, min(self.topics, begin + _TOPICS_AT_ONCE))
            requested = [NewTopic(self.name(number), 1, 1) for number in numbers]
            for future in admin.create_topics(requested, request_timeout=60).values():
                future.result()

    def send(self, count: int) -> None:
        """Send that many more, and wait until brokers have acknowledged them.

        Raises:
            RuntimeError: if brokers do not accept all of them within two minutes.
        """
        filler = self.value_bytes - NUMBER_CHARS - TIME_CHARS - 2
        for number in range(self.sent, self.sent + count):
            start = number * 7919 % (_TEXT_CHARS - filler)
            value = f"{number:0{NUMBER_CHARS}d} {_now_ms():0{TIME_CHARS}d} {self._text[start : start + filler]}"
            self._queue(self.name(number % self.topics), value.encode())
        if self._producer.flush(_FLUSH_S) or self._errors:
            raise RuntimeError(f"records could not be sent: {self._errors[:1] or 'brokers do not answer'}")
        self.sent += count

    def _queue(self, topic: str, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, on_delivery=self._noted)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _noted(self, error: object, _: object) -> None:
        if error is not None:
            self._errors.append(str(error))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
