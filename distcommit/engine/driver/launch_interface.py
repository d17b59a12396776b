"""The interface by which the engine runs its functions on many machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from distcommit.engine.run_settings import RunSettings

Result = TypeVar("Result", bound=msgspec.Struct)


class JobFailedError(Exception):
    """Error of a job in which a function raised. Other tasks of the job may have run.

    `str()` has tracebacks. `found` is one line: task, host and error.
    """

    def __init__(self, text: str, actual: str) -> None:
        super().__init__(text, actual)
        self.found = actual

    def __str__(self) -> str:
        return str(self.args[0])


class Launch(Protocol):
    """Launcher that runs `function(settings, i)` for each i below `tasks`, anywhere and in any order.

    Functions must be at module level for pickling. Results must be small, because the driver holds them all.

    Raises:
        JobFailedError: if a function raised.
        ProcessLostError: if a process died.
        TransientError: if the launching process, such as Spark's JVM, died, after which no launch can succeed.
        ConfigurationError: if functions cannot run on these machines at all.
    """

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]: ...
