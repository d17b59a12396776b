"""Clients of targets, which are extras of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import SinkCommitter


class Connection(Protocol):
    """What is closed."""

    def close(self) -> None: ...


Connected = TypeVar("Connected", bound=Connection)
Committer = TypeVar("Committer", bound=SinkCommitter)


@contextmanager
def needing_client(sink: str) -> Iterator[None]:
    """Says what to install where a module that the sink of this type imports is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the sink {sink} needs its client",
            found=str(error),
            todo=f"pip install 'distcommit[{sink}]', also where the executors run",
        ) from error


def committing_by(connection: Connected, made: Callable[[Connected], Committer]) -> Committer:
    """A committer that has a connection, which is closed if it can't be made."""
    try:
        return made(connection)
    except BaseException:
        connection.close()
        raise
