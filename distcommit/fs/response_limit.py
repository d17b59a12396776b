"""Time limit for a server's complete response. Clients' own limits only count from one byte to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


class ResponseTimeError(Exception):
    """A server has not sent its complete response within the limit."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"no complete response within {limit_s:g} s")


def call_within(limit_s: float, ask: Callable[[], Answer]) -> Answer:
    """Return the result of a call, or raise its error.

    The call runs in a daemon thread. If it exceeds the limit, the thread is abandoned and ends when its server does.

    Args:
        limit_s: seconds.
        ask: the call.

    Raises:
        ResponseTimeError: if it takes longer.
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
