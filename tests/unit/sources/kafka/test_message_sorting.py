"""Sorting of Kafka messages into buffers: bounds of the buffered bytes."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.sources.kafka.client import ClientLog, KafkaConnection, to_batch
from distcommit.sources.kafka.message_sorting import Arrivals, Buffer
from distcommit.sources.kafka.topics import MAX_BYTES

KEY, HEADERS, VALUE = {"key": b"k" * 100}, {"headers": [("a" * 60, b"1" * 40), ("b", None)]}, {"value": b"v" * 100}


@pytest.mark.parametrize("content", [KEY, HEADERS, VALUE])
def test_keys_headers_and_values_bound_a_batch(content: dict[str, Any]) -> None:
    unit = WorkUnit("0", "t", Watermark({"0": 0}), Watermark({"0": 50}), 50, {MAX_BYTES: "1000"})
    buffer, connection = Buffer.of(unit), KafkaConnection("", {}, 1)
    arrivals = Arrivals(connection, ClientLog(connection))
    arrivals.expect([buffer], ["t"])
    messages = [Message(topic="t", partition=0, offset=offset, **content) for offset in range(50)]
    arrivals.sort(messages[:20])
    assert buffer.ready()
    assert len(buffer.pop_batch()) == 10
    arrivals.sort(messages[21:])  # behind a hole, so that the messages are added one by one
    assert [len(buffer.pop_batch()) for _ in range(5)] == [10, 10, 10, 9, 0]
    assert not buffer.bytes
    assert to_batch(messages[:10])[2] in (1000, 1010)  # the second header's name has a byte
