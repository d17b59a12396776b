"""What the engine asks of whatever runs its functions on many machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from distcommit.engine.settings import RunSettings

Result = TypeVar("Result", bound=msgspec.Struct)


class JobFailedError(Exception):
    """A launched job failed in code of its own; it is not known which of its tasks have run.

    Its text is all that is known of it, tracebacks too; `found` says it in one line: which task failed where, and why.
    """

    def __init__(self, text: str, found: str) -> None:
        super().__init__(text, found)
        self.found = found

    def __str__(self) -> str:
        return str(self.args[0])


class Launch(Protocol):
    """Runs `function(settings, i)` for each i below `tasks`, in any order and place, and returns the results.

    Functions are module-level, and both they and the settings are pickled. Results must be small: the driver holds one
    for each task.

    Raises:
        JobFailedError: if a function raised.
        ProcessLostError: if a process died that ran one.
        ConfigurationError: if the functions can't run there at all.
    """

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]: ...
