"""A producer whose errors can all be caught."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from confluent_kafka import KafkaException, Producer


def told(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call of the client, whose errors are exceptions.

    The client raises some that are fatal, such as that a newer producer has fenced this one, as KafkaError. That is no
    exception: no `except` but a bare one sees it, nor does a pool of threads, whose caller would wait for ever.
    """

    @wraps(call)
    def calling(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except BaseException:
            raise
        except:  # noqa: E722 - what is none
            error = sys.exc_info()[1]
        raise KafkaException(error)  # here: while it is handled it would become the context of this one

    return calling


class CatchableProducer(Producer):
    """Raises KafkaException where the client might raise what is none."""

    init_transactions = told(Producer.init_transactions)
    begin_transaction = told(Producer.begin_transaction)
    commit_transaction = told(Producer.commit_transaction)
    abort_transaction = told(Producer.abort_transaction)
    produce = told(Producer.produce)
    poll = told(Producer.poll)
    flush = told(Producer.flush)
