"""A Kafka producer that raises only exceptions, and can be closed without waiting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from confluent_kafka import KafkaException, Producer


def raising(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of the client, which raises some fatal errors as KafkaError. That is not an exception, so a thread
    pool would wait forever."""

    @wraps(call)
    def calling(producer: CatchableProducer, *arguments: Any, **options: Any) -> Any:
        try:
            return call(producer.client, *arguments, **options)  # not in a variable: errors keep these alive
        except BaseException:
            raise
        except:  # noqa: E722 - not an exception
            error = sys.exc_info()[1]
        raise KafkaException(error)  # outside of the handler, where it would become this error's context

    return calling


class CatchableProducer:
    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.client: Producer | None = Producer(dict(conf))

    def __len__(self) -> int:
        return len(self.client or ())

    init_transactions = raising(Producer.init_transactions)
    begin_transaction = raising(Producer.begin_transaction)
    commit_transaction = raising(Producer.commit_transaction)
    abort_transaction = raising(Producer.abort_transaction)
    list_topics = raising(Producer.list_topics)
    produce = raising(Producer.produce)
    poll = raising(Producer.poll)
    flush = raising(Producer.flush)
    _purge = raising(Producer.purge)

    def close(self) -> None:
        """Drop unsent messages and close the client. The client's own `close` would wait for unavailable brokers."""
        with suppress(KafkaException):
            if len(self):
                self._purge()
                self.poll(0)  # callbacks of messages are referenced until they are called
        self.client = None
