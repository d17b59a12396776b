"""A producer whose errors can all be caught, and which is let go at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from confluent_kafka import KafkaException, Producer


def told(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call of a producer's client, whose errors are exceptions.

    The client raises some that are fatal, such as that a newer producer has fenced this one, as KafkaError. That is no
    exception: no `except` but a bare one sees it, nor does a pool of threads, whose caller would wait for ever.
    """

    @wraps(call)
    def calling(producer: CatchableProducer, *arguments: Any, **options: Any) -> Any:
        try:
            return call(producer.client, *arguments, **options)  # in no variable: an error that is kept would keep it
        except BaseException:
            raise
        except:  # noqa: E722 - what is none
            error = sys.exc_info()[1]
        raise KafkaException(error)  # here: while it is handled it would become the context of this one

    return calling


class CatchableProducer:
    """Raises KafkaException where the client might raise what is none.

    Args:
        conf: librdkafka's settings.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.client: Producer | None = Producer(dict(conf))

    def __len__(self) -> int:
        return len(self.client or ())

    init_transactions = told(Producer.init_transactions)
    begin_transaction = told(Producer.begin_transaction)
    commit_transaction = told(Producer.commit_transaction)
    abort_transaction = told(Producer.abort_transaction)
    list_topics = told(Producer.list_topics)
    produce = told(Producer.produce)
    poll = told(Producer.poll)
    flush = told(Producer.flush)
    _purge = told(Producer.purge)

    def close(self) -> None:
        """Ends its threads and connections; what was not sent is dropped. The client's own `close` would wait for
        brokers that are away."""
        with suppress(KafkaException):
            if len(self):
                self._purge()
                self.poll(0)  # whom it tells of messages is held until it has
        self.client = None
