"""Count of the file system requests of this process, for statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

Calls = TypeVar("Calls")


class Requests:
    """A counter of requests. Concurrent threads may lose single counts.

    Attributes:
        made: the number of requests so far.
    """

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0


REQUESTS = Requests()
"""The process's counter. The difference of two readings is the number of requests between them."""


def counting_calls(calls: Calls) -> Calls:
    """Wrap the system calls or client requests of a file system, so that each one is counted. Calls of open files are
    not counted."""
    return cast(Calls, _Counted(calls))


class _Counted:
    def __init__(self, calls: object) -> None:
        self._calls = calls

    def __reduce__(self) -> tuple[type[_Counted], tuple[object]]:
        return _Counted, (self._calls,)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._calls, name)
        if not callable(attribute):
            return attribute
        self.__dict__[name] = call = _counting(attribute)  # later lookups bypass __getattr__
        return call


def _counting(call: Callable[..., Any]) -> Callable[..., Any]:
    def count(*args: Any, **options: Any) -> Any:
        REQUESTS.made += 1
        return call(*args, **options)

    return count
