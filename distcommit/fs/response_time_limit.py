"""Time limit for a server's complete response. The limits of clients apply only from one byte to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


class ResponseTimeError(Exception):
    """A server did not send its complete response within the limit."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"no complete response within {limit_s:g} s")


def call_within(limit_s: float, ask: Callable[[], Answer]) -> Answer:
    """Call a function in a daemon thread. Return its result, or raise its error.

    A call that exceeds the limit continues in its thread, and its result is discarded.

    Raises:
        ResponseTimeError: after `limit_s` seconds.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="answer", daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not answers:
        raise ResponseTimeError(limit_s)
    return answers[0]
