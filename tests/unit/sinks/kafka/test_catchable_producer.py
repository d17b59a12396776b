"""Kafka client errors that are not exceptions, and the resources of a closed producer."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from distcommit.sinks.kafka.catchable_producer import CatchableProducer, raising
from tests.unit.sinks.open_clients import client_threads


def producer() -> CatchableProducer:
    """Return a producer that no broker ever answers."""
    return CatchableProducer({"bootstrap.servers": "localhost:1", "transactional.id": "any", "log_level": 0})


def fenced(client: Producer | None) -> None:
    """Raise as the client's C code does for a producer with a fatal error."""
    del client  # a raised non-exception may keep this frame forever
    error = KafkaError(KafkaError._FENCED, "fenced by a newer producer", fatal=True)
    ctypes.pythonapi.PyErr_SetObject(ctypes.py_object(KafkaError), ctypes.py_object(error))


def test_error_that_is_not_an_exception_becomes_one_also_in_a_thread() -> None:
    one = producer()
    with ThreadPoolExecutor(1) as pool, pytest.raises(KafkaException, match="fenced by a newer producer") as caught:
        pool.submit(raising(fenced), one).result(timeout=60)
    one.close()
    assert caught.value.args[0].fatal()
    assert caught.value.__context__ is None


def test_exceptions_and_results_are_unchanged() -> None:
    def stopped(client: Producer | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        raising(stopped)(producer())
    assert raising(lambda client, *numbers, of: max(numbers) * of)(producer(), 1, 2, of=3) == 6


def test_each_call_that_may_fail_fatally_is_guarded() -> None:
    calls = ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction")
    for name in (*calls, "list_topics", "produce", "poll", "flush"):
        assert getattr(CatchableProducer, name).__wrapped__ is getattr(Producer, name)


def test_closed_producer_has_no_threads_and_no_references_to_its_callbacks() -> None:
    began, closed_status = client_threads(), object()
    errors: list[KafkaException] = []
    one = producer()
    assert client_threads() > began
    with pytest.raises(KafkaException, match=r"[Tt]imed out") as caught:
        one.init_transactions(0.2)
    errors.append(caught.value)
    plain = CatchableProducer({"bootstrap.servers": "localhost:1", "log_level": 0})
    plain.produce("topic", b"", on_delivery=partial(lambda _, error, message: None, closed_status))
    held = sys.getrefcount(closed_status)
    for client in (one, plain, plain):
        client.close()
    assert client_threads() == began, errors
    assert sys.getrefcount(closed_status) == held - 1
