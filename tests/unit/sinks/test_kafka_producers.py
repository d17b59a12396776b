"""Errors of Kafka's client that are no exceptions."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from distcommit.sinks.kafka.producers import CatchableProducer, told


def fenced() -> None:
    """As the client's C code does where a producer has a fatal error."""
    error = KafkaError(KafkaError._FENCED, "fenced by a newer producer", fatal=True)
    ctypes.pythonapi.PyErr_SetObject(ctypes.py_object(KafkaError), ctypes.py_object(error))


def test_what_is_no_exception_becomes_one_also_in_a_thread() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(KafkaException, match="fenced by a newer producer") as caught:
        pool.submit(told(fenced)).result(timeout=60)
    assert caught.value.args[0].fatal()
    assert caught.value.__context__ is None


def test_exceptions_and_answers_stay_as_they_are() -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(stopped)()
    assert told(max)(1, 2) == 2


def test_each_call_that_may_do_so_is_guarded() -> None:
    calls = ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction")
    for name in (*calls, "produce", "poll", "flush"):
        assert getattr(CatchableProducer, name) is not getattr(Producer, name)
