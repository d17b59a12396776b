"""Counts the requests that a process makes of file systems. For people who want to know what a run costs: nothing
depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from distcommit.core.support.request_counts import REQUESTS

Calls = TypeVar("Calls")


def counted(calls: Calls) -> Calls:
    """The same calls, each of which is counted. They are what a file system is made of: system calls, or the requests
    of a client. What a file that was opened with them then asks for by itself is not seen."""
    return cast(Calls, _Counted(calls))


class _Counted:
    """Hands on whatever it is asked for."""

    def __init__(self, calls: object) -> None:
        self._calls = calls

    def __reduce__(self) -> tuple[type[_Counted], tuple[object]]:
        return _Counted, (self._calls,)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._calls, name)
        if not callable(found):
            return found
        self.__dict__[name] = call = _counting(found)  # asked for only once
        return call


def _counting(call: Callable[..., Any]) -> Callable[..., Any]:
    def count(*args: Any, **options: Any) -> Any:
        REQUESTS.made += 1
        return call(*args, **options)

    return count
