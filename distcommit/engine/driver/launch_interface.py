"""The interface by which the engine runs its functions on many machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from distcommit.engine.run_settings import RunSettings

Result = TypeVar("Result", bound=msgspec.Struct)


class JobFailedError(Exception):
    """A function of a launched job raised an error. It is unknown which of the job's tasks have run.

    `str()` is the full text with tracebacks. `found` is one line: the failed task, its host and the error.
    """

    def __init__(self, text: str, actual: str) -> None:
        super().__init__(text, actual)
        self.found = actual

    def __str__(self) -> str:
        return str(self.args[0])


class Launch(Protocol):
    """Runs `function(settings, i)` for each i below `tasks`, in any order and on any machine, and returns the results.

    Functions must be at module level, because functions and settings are pickled. Results must be small, because the
    driver holds one result for each task.

    Raises:
        JobFailedError: if a function raised.
        ProcessLostError: if a process that ran a function died.
        TransientError: if the process that launches jobs died, such as Spark's JVM. No further launch can succeed.
        ConfigurationError: if functions cannot run on these machines at all.
    """

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]: ...
