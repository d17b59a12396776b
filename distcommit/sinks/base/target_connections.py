"""Connections to targets, whose client libraries are optional dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import SinkCommitter
from distcommit.core.support.install_command import install_command


class Connection(Protocol):
    def close(self) -> None: ...


Connected = TypeVar("Connected", bound=Connection)
Committer = TypeVar("Committer", bound=SinkCommitter)


@contextmanager
def needing_client(sink: str) -> Iterator[None]:
    """Convert a failed import to a ConfigurationError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the client of the sink {sink} is not installed",
            id="PACKAGE_MISSING",
            found=str(error),
            todo=f"run `{install_command(sink)}` on the driver and on all executors",
        ) from error


def committing_by(connection: Connected, create: Callable[[Connected], Committer]) -> Committer:
    """Return the committer of a connection, which is closed if `create` fails."""
    try:
        return create(connection)
    except BaseException:
        connection.close()
        raise
