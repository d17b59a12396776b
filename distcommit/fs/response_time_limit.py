"""Time limit for complete responses. Clients limit only the wait for single bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


class ResponseTimeError(Exception):
    """A response that was not complete in time."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"no complete response within {limit_s:g} s")


def call_within(limit_s: float, ask: Callable[[], Answer]) -> Answer:
    """Call a function in a daemon thread and return its result. After the limit, the thread continues.

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
